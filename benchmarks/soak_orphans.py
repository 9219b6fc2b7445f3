"""What a soak left behind, counted by name: nought of each is part of the answer, not silence.

The one rule: everything is looked for in the world (the engine, the process table, files, refs, the kernel's
locks), none of it is asked of the director; a kind that is not looked for is not in the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import remains
from demo_world import left_over

from harness.compose.parts import runtime_dir

# Kind to what its lines (of `remains` and `left_over`) begin with. The first that fits; what fits none is a file.
KINDS: Mapping[str, tuple[str, ...]] = {
    "containers": ("container ",),
    "processes": ("process ",),
    "clones": ("attempts/", "gates/"),
    "jobs": ("jobs/",),
    "branches": ("forge refs/heads/",),
    "refs": ("forge ", "mirror", "quarantine"),
    "locks": ("lock ",),
    "sockets": (),
    "files": (),
    "threads": (),
    "descriptors": (),
}


def found(folder: Path, runtime: str, given_up: Iterable[int]) -> dict[str, list[str]]:
    """By kind, a line each. Containers only where there are any: with the process runtime there is no such kind."""
    kinds: dict[str, list[str]] = {k: [] for k in KINDS if k != "containers" or runtime == "docker"}
    sockets = str(runtime_dir(folder / "data"))
    lines = [*left_over(folder, runtime), *remains.processes(folder), *remains.files(folder)]
    short = [line.removeprefix(f"{folder}/") for line in lines]  # one thing that is found twice is one
    for line in dict.fromkeys([*short, *remains.refs(folder, given_up)]):
        kinds[_kind(line, sockets)].append(line)
    return kinds


def _kind(line: str, sockets: str) -> str:
    if line.startswith(sockets) or line.endswith(".sock"):
        return "sockets"
    named = next((kind for kind, starts in KINDS.items() if line.startswith(starts)), "files")
    return "locks" if named == "files" and line.endswith(".lock") else named


def files_of_what_is_over(folder: Path, names: Sequence[str]) -> list[str]:
    """Of a director that has nothing left to do, those open files (by their paths) that belong to what is over:
    below an attempt, a job, a gate or a temporary folder, or removed."""
    over = tuple(str(folder / "data" / part) for part in ("attempts", "jobs", "gates", "tmp"))
    mine = [name for name in names if name.startswith(str(folder))]
    return [f"descriptor of {name}" for name in mine if name.startswith(over) or name.endswith(" (deleted)")]
