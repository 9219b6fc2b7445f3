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
_PLAIN = frozenset({type(None), bool, int, float, str})


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
        self._members = {c: tuple(f.name for f in fields(c)) for c in found.values()}

    def encode(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        names = self._members.get(kind)
        if names is not None:
            body: dict[str, Any] = {TAG: kind.__name__}
            for name in names:
                body[name] = self.encode(getattr(value, name))
            return body
        if kind is dict:
            return {str(k): self.encode(v) for k, v in value.items()}
        if kind is tuple or kind is list:
            return [self.encode(v) for v in value]
        return self._encode_other(value)

    def _encode_other(self, value: Any) -> Any:
        """What is not exactly one of the plain kinds: a subclass of one, or nothing that has a JSON form."""
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Mapping):
            return {str(k): self.encode(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.encode(v) for v in value]
        if isinstance(value, set | frozenset):
            return sorted(self.encode(v) for v in value)
        if is_dataclass(value):
            raise CodecError(f"{type(value).__name__} is not in the registry")
        raise CodecError(f"no JSON form for {type(value).__name__}")

    def decode(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            return tuple([v if type(v) in _PLAIN else self.decode(v) for v in value])
        if kind is not dict:
            return value
        name = value.get(TAG)
        if name is None:
            return {k: v if type(v) in _PLAIN else self.decode(v) for k, v in value.items()}
        cls = self.classes.get(name)
        if cls is None:
            raise CodecError(f"the registry has no {name}")
        known = self._members[cls]
        return cls(**{k: v if type(v) in _PLAIN else self.decode(v) for k, v in value.items() if k in known})
