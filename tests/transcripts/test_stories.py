"""Golden nights: each story is played in memory and compared, line by line, with what is written beside this
file. `HARNESS_UPDATE_GOLDEN=1` rewrites them; the diff is then read as prose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from plays import STORIES

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", STORIES)
def test_the_story_is_still_the_same(name: str) -> None:
    play = STORIES[name]
    text = f"{(play.__doc__ or '').strip()}\n{play().end()}"
    golden = HERE / f"{name}.txt"
    if os.environ.get("HARNESS_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text.splitlines() == golden.read_text().splitlines()


def test_no_story_is_left_over() -> None:
    assert {p.stem for p in HERE.glob("*.txt")} == set(STORIES)
