"""Every machine by name, and the codec that reads and writes their journals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.core.codec import Codec
from harness.machines.attempt.table import KIND as ATTEMPT
from harness.machines.director.table import KIND as DIRECTOR
from harness.machines.kind import Kind, codec
from harness.machines.release.table import KIND as RELEASE
from harness.machines.ticket.table import KIND as TICKET
from harness.machines.worker.table import KIND as WORKER

KINDS: Mapping[str, Kind] = MappingProxyType(
    {k.name: k for k in (DIRECTOR, TICKET, ATTEMPT, RELEASE, WORKER)}
)
CODEC: Codec = codec(*(k.data for k in KINDS.values()))


def kind_of(machine: str) -> Kind:
    """`acme/widget/ticket/12` is a ticket: the part before the last names the kind. Raises KeyError."""
    return KINDS[machine.rsplit("/", 2)[-2]]
