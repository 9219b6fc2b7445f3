"""Attempts that start at once on one mirror; `benchmarks/git_weather.py` starts six hundred and forty."""

from __future__ import annotations

from pathlib import Path

from git_starts import Starts


def test_starts_at_once_all_succeed(tmp_path: Path) -> None:
    tally = Starts(tmp_path).play(parallel=8, rounds=2)
    assert tally.wrong == []
    assert tally.starts == 16
