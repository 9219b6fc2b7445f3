"""Frozen dataclasses to plain JSON values and back, by the class's name.

The one rule: what was written can be read again to an equal value, so a journal can be replayed.
Values: None, bool, int, float, str, tuples, string-keyed mappings, StrEnums and dataclasses of one registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

TAG = "$"


class CodecError(Exception):
    """A value that has no JSON form here, or a name that the registry does not know."""


class Codec:
    """Encodes and decodes the dataclasses it was given.
    Unknown fields on reading are ignored (an older reader)."""

    def __init__(self, classes: Iterable[type]) -> None:
        found: dict[str, type] = {}
        for c in classes:
            if found.setdefault(c.__name__, c) is not c:
                raise CodecError(f"two classes are called {c.__name__}")
        self.classes: Mapping[str, type] = found

    def encode(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, str):
            return value
        if is_dataclass(value) and not isinstance(value, type):
            name = type(value).__name__
            if self.classes.get(name) is not type(value):
                raise CodecError(f"{name} is not in the registry")
            body = {f.name: self.encode(getattr(value, f.name)) for f in fields(value)}
            return {TAG: name, **body}
        if isinstance(value, Mapping):
            return {str(k): self.encode(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.encode(v) for v in value]
        if isinstance(value, set | frozenset):
            return sorted(self.encode(v) for v in value)
        raise CodecError(f"no JSON form for {type(value).__name__}")

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self.decode(v) for v in value)
        if not isinstance(value, dict):
            return value
        name = value.get(TAG)
        if name is None:
            return {k: self.decode(v) for k, v in value.items()}
        cls = self.classes.get(name)
        if cls is None:
            raise CodecError(f"the registry has no {name}")
        known = {f.name for f in fields(cls)}
        return cls(**{k: self.decode(v) for k, v in value.items() if k in known})
