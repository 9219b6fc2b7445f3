"""Texts that are too long: what is kept, what is said, and that nothing stays open."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.adapters.github.bodies import BODY_LIMIT, NOTE, SHORT_LIMIT, fit_body

MARKER = "<!-- harness:v1 key=status/12 mac=0123456789abcdef -->"


def fences(text: str) -> int:
    return sum(1 for line in text.split("\n") if line.startswith("```"))


def test_what_fits_is_left_alone() -> None:
    for text in ("", "hello", "x" * BODY_LIMIT, "```\nopen"):
        assert fit_body(text) == text


@pytest.mark.parametrize("limit", [BODY_LIMIT, SHORT_LIMIT])
def test_a_long_summary_with_an_open_fence_and_emoji(limit: int) -> None:
    code = "print(1) # 🎉\n" * 10_000
    text = f"# Summary\n\nRefs #12\n\n```python\n{code}\n\n{MARKER}"
    assert len(text) > 120_000
    cut = fit_body(text, limit)
    assert len(cut) <= limit
    assert len(cut) > limit - 3_000
    assert "Refs #12" in cut
    assert NOTE in cut
    assert fences(cut) == 2
    assert cut.index(NOTE) > cut.rindex("```")


def test_marker_and_reference_at_the_end_survive() -> None:
    text = "word " * 30_000 + f"\n\nRefs #12\nCloses acme/widget#7\n\n{MARKER}\n"
    cut = fit_body(text)
    assert len(cut) <= BODY_LIMIT
    lines = cut.split("\n")
    assert lines[-1] == MARKER
    assert "Refs #12" in lines
    assert "Closes acme/widget#7" in lines


def test_a_marker_in_the_beginning_is_kept_too() -> None:
    cut = fit_body(f"{MARKER}\n" + "x\n" * 60_000)
    assert cut.startswith(MARKER)


def test_what_looks_like_a_marker_inside_a_code_block_is_code() -> None:
    text = "```\n" + "x\n" * 40_000 + "<!-- not ours -->\n```\n\n" + "y\n" * 10_000
    cut = fit_body(text)
    assert "not ours" not in cut
    assert fences(cut) == 2


def test_an_open_html_comment_or_details_does_not_swallow_the_note() -> None:
    cut = fit_body("<details><summary>log</summary>\n\n" + "x\n" * 60_000 + "</details>\n")
    assert cut.count("<details") == cut.count("</details>")
    cut = fit_body("<!--\n" + "x\n" * 60_000 + "-->\n")
    assert cut.index("-->") < cut.index(NOTE)


def test_tildes_and_longer_fences_are_closed_by_their_like() -> None:
    cut = fit_body("~~~~\n```\n" + "x\n" * 60_000)
    assert "\n~~~~\n" in cut


def test_lone_surrogates_and_nul_are_replaced() -> None:
    assert fit_body("a\ud800b\x00c") == "a?bc"


lines = st.sampled_from(
    [
        "```",
        "~~~",
        "````py",
        "<!-- m -->",
        "<!--",
        "-->",
        "<details>",
        "</details>",
        "Refs #1",
        "> ```",
        "🎉" * 9,
        "x" * 99,
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(lines, min_size=1, max_size=400), st.integers(700, 6_000))
def test_never_over_the_limit_and_always_told(parts: list[str], limit: int) -> None:
    text = "\n".join(parts)
    cut = fit_body(text, limit)
    assert len(cut) <= limit
    assert cut == text or NOTE in cut
    assert fit_body(cut, limit) == cut
