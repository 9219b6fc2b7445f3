"""When a director that ends by itself has nothing left to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.compose.ends import idle
from harness.core.item import Item
from harness.machines.director.states import Director
from harness.machines.release.states import Release
from harness.machines.ticket.states import Ticket

DIRECTOR, RELEASE, TICKET = "acme/widget/director/1", "acme/widget/release/0.1.0", "acme/widget/ticket/7"


@pytest.mark.parametrize(
    ("release", "ticket", "over"),
    [
        ("PUBLISHED", "LANDED", False),  # its comment still says that it waits for the release
        ("ABANDONED", "LANDED", False),
        ("PUBLISHED", "RELEASED", True),
        ("OPEN", "LANDED", True),
    ],
)
def test_idle_is_not_before_a_landed_ticket_has_said_how_its_release_ended(
    release: str, ticket: str, over: bool
) -> None:
    items = {
        DIRECTOR: Item(DIRECTOR, "SELF_REVIEW", Director()),
        RELEASE: Item(RELEASE, release, Release(version="0.1.0")),
        TICKET: Item(TICKET, ticket, Ticket(issue=7, landed_in=RELEASE)),
    }
    running: Any = SimpleNamespace(machine=DIRECTOR, loop=SimpleNamespace(items=items, out=set()))
    assert idle(running) is over
