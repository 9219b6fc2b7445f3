"""`harness sim`: seeded nights in memory, with everything that can go wrong going wrong."""

from __future__ import annotations

import sys

import click

from harness.cli.common import Failed, emit, json_option

SHOWN = 3


@click.command(help="Play seeded nights in memory with faults, and check what must always hold.")
@click.option(
    "--seeds", default="0:100", show_default=True, metavar="A:B", help="From A up to, not including, B."
)
@click.option("--issues", default=3, show_default=True, type=click.IntRange(1, 50))
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 20))
@click.option(
    "--faults",
    default="all",
    show_default=True,
    metavar="LIST",
    help="Comma-separated classes, all, or none.",
)
@click.option("--processes", default=0, show_default=True, help="0: one per processor.")
@click.option("--transcript", is_flag=True, help="Print the transcript of every seed, to stderr.")
@json_option
def command(
    seeds: str, issues: int, workers: int, faults: str, processes: int, transcript: bool, as_json: bool
) -> int:
    from harness.sim.seeds import Options, play, timed

    numbers, classes = numbers_of(seeds), classes_of(faults)
    options = Options(issues, workers, classes)
    verdicts, seconds = timed(numbers, options, processes)
    bad = [v for v in verdicts if v.violations]
    for v in verdicts if transcript else bad[:SHOWN]:
        lines = v.transcript or play(v.seed, options, story=True).transcript
        again = f"harness sim --seeds {v.seed}:{v.seed + 1} --issues {issues} --workers {workers} --faults {faults}"
        click.echo(
            "\n".join([f"seed {v.seed} ({', '.join(v.classes) or 'no faults'}); again: {again}", *lines, ""]),
            err=True,
        )
    found = [{"seed": v.seed, "invariant": x.invariant, "step": x.step} for v in bad for x in v.violations]
    document = {
        "seeds": len(verdicts), "violations": found, "ticks": sum(v.ticks for v in verdicts),
        "seconds": round(seconds, 3),
    }  # fmt: skip
    text = "\n".join(
        [*(f"seed {x['seed']}: {x['invariant']} (step {x['step']})" for x in found),
         f"{document['seeds']} seeds, {len(found)} violations, {document['ticks']} ticks, {seconds:.1f} s"]
    )  # fmt: skip
    emit(document, as_json, text)
    return 1 if found else 0


def numbers_of(text: str) -> range:
    first, colon, last = text.partition(":")
    if not first.isdigit() or (colon and not last.isdigit()):
        raise Failed(f"--seeds {text}: expected A:B with two numbers, such as 0:1000", 2)
    found = range(int(first), int(last) if colon else int(first) + 1)
    if not found:
        raise Failed(f"--seeds {text}: there is no seed in it; B must be greater than A", 2)
    return found


def classes_of(text: str) -> tuple[str, ...]:
    from harness.sim.weather import CLASSES

    if text == "all":
        return tuple(CLASSES)
    names = tuple(x.strip() for x in text.split(",") if x.strip() and x.strip() != "none")
    unknown = [n for n in names if n not in CLASSES]
    if unknown:
        raise Failed(f"--faults: no class {unknown[0]}; known: all, none, {', '.join(CLASSES)}", 2)
    return names


if __name__ == "__main__":
    sys.exit(command())
