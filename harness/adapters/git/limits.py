"""What the director's git may take: sizes of what a worker hands over, and a deadline for every command.

The one rule: nothing that comes from outside is without a bound.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GitLimits:
    """Sizes in bytes, times in seconds. `max_objects` bounds a bundle's pack, `alloc_bytes` one allocation of
    git while it reads what is not trusted (a delta of a few bytes can claim gigabytes), `max_imports` the refs
    that tell which bundles were taken over whole, `max_saved` those of work that was saved."""

    max_bundle_bytes: int = 50 << 20
    max_commits: int = 500
    max_files: int = 300
    max_file_bytes: int = 5 << 20
    max_objects: int = 50_000
    max_read_bytes: int = 5 << 20
    max_imports: int = 100
    max_saved: int = 500
    output_bytes: int = 64 << 20
    stderr_bytes: int = 64 << 10
    alloc_bytes: int = 512 << 20
    local_s: float = 60.0
    look_s: float = 30.0
    fetch_s: float = 600.0
    push_s: float = 300.0
    clone_s: float = 300.0
    import_s: float = 120.0
    lock_s: float = 60.0
    stall_s: int = 60
    gate_depth: int = 1
