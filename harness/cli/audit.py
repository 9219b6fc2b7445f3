"""`harness audit`: the evidence of each attempt, and whether it still holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from harness.cli.common import Failed, columns, config_option, emit, json_option, load_config, open_store

audits_option = click.option(
    "--audits",
    "audits",
    metavar="DIR",
    default=None,
    help="The folder of bundles (default: the configuration's audit.dir).",
)
store_option = click.option(
    "--store", "store", is_flag=True, help="The director's own journals instead of bundles."
)
SHOWN = 20


@click.group(help="Bundles of attempts: list, show, verify, replay, compare, hand on.")
def command() -> None:
    pass


def folder_of(audits: str | None, config: str | None) -> Path:
    if audits:
        folder = Path(audits)
        if not folder.is_dir():
            raise Failed(f"{folder} is not there: --audits names the folder of the bundles")
        return folder
    from harness.compose.parts import audits_dir

    loaded = load_config(config)
    return audits_dir(loaded, loaded.data_dir.absolute())


@contextmanager
def journals(config: str | None) -> Iterator[tuple[Any, str]]:
    """The store, and the beginning of the names of its machines."""
    loaded = load_config(config)
    store = open_store(loaded)
    try:
        yield store, f"{loaded.forge.repo.lower()}/"
    finally:
        store.close()


@contextmanager
def telling(total: int, what: str) -> Iterator[Callable[[Any], None]]:
    """A bar on stderr while something long runs there before a person's eyes; nothing elsewhere."""
    stream = sys.stderr
    if total < 2 or not stream.isatty():
        yield lambda item: None
        return
    with click.progressbar(length=total, label=what, file=stream) as bar:
        yield lambda item: bar.update(1)


# ---------------------------------------------------------------- looking


@command.command("list", help="Every bundle, oldest first.")
@audits_option
@config_option
@json_option
def list_(audits: str | None, config: str | None, as_json: bool) -> int:
    from harness.audit.index import list_bundles

    folder = folder_of(audits, config)
    found = list_bundles(folder)
    document = [{k: getattr(x, k) for k in x.__dataclass_fields__} for x in found]
    rows = [
        (x.audit, f"#{x.issue}", x.failure or x.outcome, f"${x.cost_usd:.2f}" if x.cost_usd else "", x.title)
        for x in found
    ]
    emit(document, as_json, "\n".join(columns(rows, "")) or f"no bundle in {folder} yet")
    return 0


@command.command(help="One bundle, by its id, a beginning of it, or its attempt (12.1).")
@click.argument("bundle")
@audits_option
@config_option
@json_option
def show(bundle: str, audits: str | None, config: str | None, as_json: bool) -> int:
    from harness.audit import index

    found = index.show(folder_of(audits, config), bundle)
    files = columns([(f"{n} bytes", name) for name, n in sorted(found["files"].items())])
    left = [f"left out: {x}" for x in found["left_out"]]
    emit(
        found,
        as_json,
        "\n".join([found["summary"].rstrip(), "", f"Files in {found['folder']}", *files, *left]),
    )
    return 0


# ---------------------------------------------------------------- proving


@command.command(
    help="Is every byte what it was? One bundle, all of them, or --store. Exit 1 names the first bad record."
)
@click.argument("bundle", required=False)
@store_option
@audits_option
@config_option
@json_option
def verify(bundle: str | None, store: bool, audits: str | None, config: str | None, as_json: bool) -> int:
    from harness.audit import index
    from harness.audit import verify as verifying

    if store:
        _one_of(bundle, audits)
        with journals(config) as (kept, prefix):
            machines = len(kept.machines(prefix))
            with telling(machines, "verifying journals") as tell:
                findings = verifying.verify_store(kept, prefix, tell)
        return _found(findings, f"{_count(machines, 'journal')} of {prefix[:-1]}", as_json)
    folder = folder_of(audits, config)
    if bundle:
        one = index.find(folder, bundle)
        return _found(verifying.verify_bundle(one), f"bundle {one.name}", as_json)
    bundles = len(index.bundles_on_disk(folder))
    gone = sum(1 for x in index.read_index(folder).values() if x.removed)
    about = f"{_count(bundles, 'bundle')} in {folder}" + (f" ({gone} removed by retention)" if gone else "")
    return _found(verifying.verify_audits(folder), about, as_json)


def _one_of(bundle: str | None, audits: str | None) -> None:
    if bundle or audits:
        raise Failed("--store is about the director's journals: give no bundle and no --audits with it", 2)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _found(findings: list[Any], about: str, as_json: bool) -> int:
    document = {
        "ok": not findings,
        "about": about,
        "findings": [
            {"where": f.where, "what": f.what, "machine": f.machine, "record": f.seq} for f in findings
        ],
    }
    emit(document, as_json, f"{about}: nothing was changed" if not findings else "")
    if findings and not as_json:
        _refuse(findings)
    return 1 if findings else 0


def _refuse(findings: list[Any]) -> None:
    """The first finding as the error, the others after it, bounded."""
    rest = [f"  also: {f}" for f in findings[1:SHOWN]]
    more = [f"  and {len(findings) - SHOWN} more (--json has all)"] if len(findings) > SHOWN else []
    raise Failed("\n".join([str(findings[0]), *rest, *more]))


@command.command(help="Would this code decide again as the journal says? Exit 1 names the first divergence.")
@click.argument("bundle", required=False)
@store_option
@audits_option
@config_option
@json_option
def replay(bundle: str | None, store: bool, audits: str | None, config: str | None, as_json: bool) -> int:
    from harness.audit import index
    from harness.audit import replay as replaying

    if store:
        _one_of(bundle, audits)
        with journals(config) as (kept, prefix):
            machines = len(kept.machines(prefix))
            with telling(machines, "replaying journals") as tell:
                found = replaying.replay_store(kept, prefix, tell)
        return _diverged(found, f"{_count(machines, 'journal')} of {prefix[:-1]}", as_json)
    folder = folder_of(audits, config)
    names = [index.find(folder, bundle)] if bundle else [folder / n for n in index.bundles_on_disk(folder)]
    found = []
    with telling(len(names), "replaying bundles") as tell:
        for name in names:
            tell(name)
            found += replaying.replay_bundle(name)
    about = f"bundle {names[0].name}" if bundle else f"{_count(len(names), 'bundle')} in {folder}"
    return _diverged(found, about, as_json)


def _diverged(found: list[Any], about: str, as_json: bool) -> int:
    document = {
        "ok": not found,
        "about": about,
        "divergences": [
            {
                "machine": d.machine, "record": d.seq, "what": d.what, "expected": d.expected, "got": d.got,
                "same_code": d.same_code,
            }
            for d in found
        ],
    }  # fmt: skip
    emit(document, as_json, f"{about}: every decision is reached again" if not found else "")
    if found and not as_json:
        _refuse(found)
    return 1 if found else 0


# ---------------------------------------------------------------- comparing and handing on


@command.command(help="Where do two bundles first decide differently? Exit 1 when they do.")
@click.argument("a")
@click.argument("b")
@click.option("--strict", is_flag=True, help="Compare what was written, too, not only the decisions.")
@audits_option
@config_option
@json_option
def diff(a: str, b: str, strict: bool, audits: str | None, config: str | None, as_json: bool) -> int:
    from harness.audit.diff import diff_bundles
    from harness.audit.index import find

    folder = folder_of(audits, config)
    found = diff_bundles(find(folder, a), find(folder, b), strict=strict)
    document = {
        "same": not found,
        "differences": [
            {
                "journal": d.journal, "what": d.what, "a": d.a.seq if d.a else None,
                "b": d.b.seq if d.b else None, "facts": list(d.facts), "text": str(d),
            }
            for d in found
        ],
    }  # fmt: skip
    emit(document, as_json, "\n".join(str(d) for d in found) or "both decide the same")
    return 1 if found else 0


@command.command(
    help="Write a bundle as a tar.gz, the same bytes each time; or a machine's journal with --journal."
)
@click.argument("bundle")
@click.argument("target", type=click.Path(path_type=Path), default=Path("."))
@click.option(
    "--journal",
    is_flag=True,
    help="BUNDLE is a machine of the director's store (ticket/12): write its records.",
)
@audits_option
@config_option
@json_option
def export(
    bundle: str, target: Path, journal: bool, audits: str | None, config: str | None, as_json: bool
) -> int:
    if journal:
        with journals(config) as (kept, prefix):
            machine = bundle if bundle.startswith(prefix) else prefix + bundle
            if machine not in kept.machines(machine):
                raise Failed(f"the store has no journal of {machine}")
            path = target / f"{machine.replace('/', '-')}.jsonl" if target.is_dir() else target
            kept.export(machine, path)
    else:
        from harness.audit.export import export as packing
        from harness.audit.index import find

        path = packing(find(folder_of(audits, config), bundle), target)
    emit({"path": str(path), "bytes": path.stat().st_size}, as_json, str(path))
    return 0
