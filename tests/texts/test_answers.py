"""A person's answer to a question, as the next prompt has it."""

from __future__ import annotations

import pytest

from harness.domain import Reply
from harness.machines.ticket.waiting import answer
from harness.texts.issues import question
from harness.texts.prompts import prompt


def reply(body: str) -> Reply:
    return Reply(7, "alice", body, 0.0, trusted=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("> Which database?\n\nPostgres", "Postgres"),
        ("  > Which?\n> really\nPostgres\n\nwith TLS\n", "Postgres\n\nwith TLS"),
        ("> only a quotation\n> of two lines", ""),
        (question("Which database?").split("\n\n")[1], ""),
    ],
)
def test_an_answer_is_what_was_not_quoted(body: str, said: str) -> None:
    assert answer(reply(body)) == said


def test_an_answer_reaches_the_agent_as_a_decision() -> None:
    said = answer(reply("> Which database?\n\nPostgres"))
    pair = {"question": "Which database?", "answer": said, "by": "alice"}
    text, _ = prompt({"issue": 1, "text": "# T", "answers": [pair]})
    assert "alice, a person with write access, answered:\n\n> Postgres\n" in text
