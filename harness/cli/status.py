"""`harness status`: what is going on, what waits for whom, and who must do something."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from harness.cli.common import (
    Failed,
    columns,
    config_option,
    emit,
    json_option,
    load_config,
    open_store,
    paint,
)

WATCH_S = 2.0
COLOURS = {
    "DEFERRED": "yellow",
    "BLOCKED": "red",
    "WAITING": "yellow",
    "REVIEWING": "yellow",
    "LANDED": "green",
}
PEOPLE = frozenset({"WAITING", "BLOCKED", "REVIEWING"})
OVER = frozenset({"RELEASED", "GONE"})


@click.command(help="What is going on: reads the store, whether a director runs or not.")
@config_option
@click.option("--watch", is_flag=True, help="Show it again every two seconds until ^C.")
@click.option("--all", "everything", is_flag=True, help="Also what was released or has ended.")
@json_option
def command(config: str | None, watch: bool, everything: bool, as_json: bool) -> int:
    loaded = load_config(config)
    if watch and as_json:
        raise Failed("--watch is for people, --json for programs: use one of them", 2)
    while True:
        document = look(loaded)
        if watch:
            click.clear()
        emit(document, as_json, text(document, everything))
        if not watch:
            return 0
        time.sleep(WATCH_S)


def look(config: Any) -> dict[str, Any]:
    from harness.compose import standing

    store = open_store(config)
    try:
        return standing.document(standing.read(config, store))
    finally:
        store.close()


def age(seconds: float) -> str:
    """`12 s`, `3 min`, `2 h 05 min`, `3 d`."""
    s = int(seconds)
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60} min"
    if s < 86400:
        return f"{s // 3600} h {s % 3600 // 60:02} min"
    return f"{s // 86400} d"


def text(d: Mapping[str, Any], everything: bool = False) -> str:
    lines = [_head(d)]
    if d["paused"]:
        lines.append(paint(f"Nothing new is taken: {d['paused']} (harness resume)", "yellow"))
    for x in d["limited"]:
        at = x["until"][11:19]
        lines.append(
            paint(f"{x['resource']}: rate limited until {at} UTC, {age(x['left_s'])} from now", "yellow")
        )
    lines += [paint(f"Trouble: {x}", "red") for x in d["trouble"]]
    lines += [
        "",
        *_release(d["release"]),
        _workers(d),
        *_tickets(d, everything),
        *_passed_over(d),
        *_held(d),
        *_todo(d),
    ]
    return "\n".join(lines)


def _head(d: Mapping[str, Any]) -> str:
    x = d["director"]
    if "epoch" not in x:
        return f"{d['repo']}: no director has run yet"
    if not x["running"]:
        clean = x["state"] == "SHUTDOWN"
        end = (
            f"was shut down {age(x['age_s'])} ago"
            if clean
            else f"ended in {x['state']} without being shut down"
        )
        return paint(
            f"{d['repo']}: no director is running; the last one (epoch {x['epoch']}) {end}",
            "yellow" if clean else "red",
        )
    o = x["owner"]
    who = f"process {o.get('pid', '?')} on {o.get('host', '?')} since {o.get('since', '?')}"
    cooling = f", cooling down: {x['cooldown']}" if x["cooldown"] else ""
    waits = f"\n  waits: {x['waits_for']}" if x["waits_for"] else ""
    return (
        paint(f"{d['repo']}: the director runs, {x['state']} for {age(x['age_s'])}{cooling}", "green")
        + f"\n  epoch {x['epoch']}, {who}{waits}"
    )


def _release(r: Mapping[str, Any] | None) -> list[str]:
    if r is None:
        return ["Release: none yet"]
    landed = ", ".join(f"#{n}" for n in r["landed"]) or "nothing yet"
    pull = f", pull #{r['pull']}" if r["pull"] else ""
    if r["state"] == "PUBLISHED":
        return [
            f"Release {r['tag']}: published {age(r['age_s'])} ago at {r['merge_sha'][:12]}; landed: {landed}"
        ]
    lines = [f"Release {r['version']}: {r['state']} for {age(r['age_s'])}{pull}; landed: {landed}"]
    return lines + ([f"  waits for {r['waits_for']}"] if r["waits_for"] else [])


def _workers(d: Mapping[str, Any]) -> str:
    w = d["workers"]
    queue = f"; waiting for one: {', '.join(f'#{n}' for n in w['waiting'])}" if w["waiting"] else ""
    spent = d["spent_today"].get("usd", 0.0)
    money = f"; model cost today ${spent:.2f}" if spent else ""
    return f"Workers: {w['used']} of {w['of']} in use{queue}{money}"


def _tickets(d: Mapping[str, Any], everything: bool) -> list[str]:
    shown = [t for t in d["tickets"] if everything or t["state"] not in OVER]
    rows = []
    for t in shown:
        title = t["title"] if len(t["title"]) <= 60 else t["title"][:59] + "…"
        rows.append((f"#{t['issue']}", t["state"], age(t["age_s"]), f"{title}"))
    lines = columns(rows)
    out = []
    for t, line in zip(shown, lines, strict=True):
        colour = COLOURS.get(t["state"])
        out.append(paint(line, colour) if colour else line)
        about = t["reason"] or (f"waits for {t['waits_for']}" if t["waits_for"] else "")
        if about:
            out.append(f"      {about}")
    over = len(d["tickets"]) - len(shown)
    head = ["", "Tickets"] if out else []
    return head + out + (["", f"{over} released or ended (--all shows them)"] if over else [])


def _passed_over(d: Mapping[str, Any]) -> list[str]:
    rows = [(f"#{x['issue']}", x["reason"]) for x in d["passed_over"]]
    return ["", "Not taken", *columns(rows)] if rows else []


def _held(d: Mapping[str, Any]) -> list[str]:
    rows = [
        (x["machine"].split("/", 2)[-1], x["effect"], f"{x['tries']} tries", x["why"] or x["status"])
        for x in d["held"]
    ]
    return ["", "Not done yet", *columns(rows)] if rows else []


def _todo(d: Mapping[str, Any]) -> list[str]:
    """What a person is asked to do."""
    people = [t for t in d["tickets"] if t["state"] in PEOPLE]
    lines = [f"  harness explain {t['issue']}    {t['waits_for']}" for t in people]
    return ["", "People are waited for", *lines] if lines else []
