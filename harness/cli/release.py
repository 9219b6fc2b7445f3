"""`harness release`: how the release stands, and what a person may do with it."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.asking import ask, ticket_of
from harness.cli.common import Failed, config_option, emit, json_option, load_config, open_store
from harness.cli.status import age

CUTTABLE = frozenset({"OPEN", "NEEDS_PERSON"})
KEPT = frozenset({"TAGGING", "PUBLISHING"})
DEFERRABLE = frozenset({"ATTEMPTING", "WAITING"})
SHOWN = 10


@click.group(help="How the release stands; cut it, take an issue out of it, or abandon it.")
def command() -> None:
    pass


@command.command(help="The release under way and those before it.")
@config_option
@json_option
def status(config: str | None, as_json: bool) -> int:
    from harness.compose import standing

    loaded = load_config(config)
    store = open_store(loaded)
    try:
        s = standing.read(loaded, store)
        now = standing.document(s)
        past = sorted(
            (i for i in s.kind("release") if i.state in standing.ENDED), key=lambda i: -i.entered_at
        )
        earlier = [
            {
                "version": i.data.version, "state": i.state, "tag": i.data.tag, "landed": list(i.data.landed),
                "merge_sha": i.data.merge_sha,
            }
            for i in past[:SHOWN]
        ]  # fmt: skip
    finally:
        store.close()
    r = now["release"]
    emit(
        {"release": r, "tickets": now["tickets"], "earlier": earlier},
        as_json,
        _text(r, now["tickets"], earlier),
    )
    return 0


def _text(r: dict[str, Any] | None, tickets: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> str:
    lines = []
    if r is None:
        lines.append("no release yet: one is planned when there is work")
    elif r["state"] not in ("PUBLISHED", "ABANDONED"):
        pull = f", pull #{r['pull']}" if r["pull"] else ""
        lines.append(f"{r['version']}: {r['state']} for {age(r['age_s'])}, branch {r['branch']}{pull}")
        if r["waits_for"]:
            lines.append(f"  waits for {r['waits_for']}")
        for t in tickets:
            if t["state"] not in ("RELEASED", "GONE"):
                lines.append(f"  #{t['issue']} {t['state']}: {t['title'][:70]}")
    for e in earlier:
        what = (
            f"{e['tag']} published at {e['merge_sha'][:12]}"
            if e["state"] == "PUBLISHED"
            else f"{e['version']} abandoned"
        )
        lines.append(f"{what}: {', '.join(f'#{n}' for n in e['landed']) or 'nothing landed'}")
    return "\n".join(lines)


def _open(standing: Any) -> Any:
    release = standing.release
    if release is None or release.state in ("PUBLISHED", "ABANDONED"):
        raise Failed("no release is under way")
    return release


@command.command(help="Release what has landed now, or have a release that needs a person judged again.")
@config_option
@json_option
def cut(config: str | None, as_json: bool) -> int:
    def check(standing: Any) -> None:
        r = _open(standing)
        if r.state not in CUTTABLE:
            raise Failed(f"release {r.data.version} is {r.state} already: there is nothing to cut")
        landed = [t for t in standing.kind("ticket") if t.state == "LANDED" and t.data.landed_in == r.id]
        if r.state == "OPEN" and not landed:
            raise Failed(f"nothing has landed on {r.data.branch} yet: there is nothing to release")

    return ask(config, as_json, "release-cut", {}, "the release goes with what has landed", check)


@command.command(help="Take issue N out of the release under way; `harness retry N` brings it back.")
@click.argument("issue", type=click.IntRange(min=1), metavar="N")
@config_option
@json_option
def defer(issue: int, config: str | None, as_json: bool) -> int:
    def check(standing: Any) -> None:
        ticket_of(standing, issue, DEFERRABLE, "defer")

    return ask(
        config,
        as_json,
        "release-defer",
        {"issue": issue},
        f"issue {issue} is taken out of the release",
        check,
    )


@command.command(help="Give the release under way up: nothing of it is merged or tagged.")
@click.argument("version", required=False)
@config_option
@json_option
def abandon(version: str | None, config: str | None, as_json: bool) -> int:
    def check(standing: Any) -> None:
        r = _open(standing)
        if version and version != r.data.version:
            raise Failed(f"release {version} is not under way, {r.data.version} is")
        if r.state in KEPT:
            raise Failed(
                f"release {r.data.version} is {r.state}: it is on {r.data.base} already and can only go on"
            )
        args["version"] = r.data.version

    args: dict[str, str] = {}
    return ask(
        config,
        as_json,
        "release-abandon",
        args,
        "the release is abandoned; its landed work stays on its branch",
        check,
    )
