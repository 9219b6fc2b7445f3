"""Small facts and controls of a worker's store: one JSON file beside its journal.

The one rule: the file is replaced as a whole, so that it holds what was kept last or what was kept before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.adapters.store import places
from harness.adapters.store.errors import StoreError
from harness.domain import Control


class Facts:
    """Not safe for threads by itself: its store holds a lock. Raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def control(self, at: float, verb: str, args: Mapping[str, Any]) -> int:
        kept = self._read()
        number = len(kept["controls"]) + 1
        entry = {"id": number, "at": at, "verb": verb, "args": dict(args)}
        self._write({**kept, "controls": [*kept["controls"], entry]})
        return number

    def controls(self, after: int) -> Sequence[Control]:
        found = self._read()["controls"][max(after, 0) :]
        return [Control(c["id"], c["at"], c["verb"], c["args"]) for c in found]

    def get(self, key: str) -> Any | None:
        return self._read()["facts"].get(key)

    def put(self, key: str, value: Any) -> None:
        kept = self._read()
        facts = {k: v for k, v in kept["facts"].items() if k != key}
        self._write({**kept, "facts": facts if value is None else {**facts, key: value}})

    def _read(self) -> dict[str, Any]:
        data = places.read_file(self.path)
        if data is None:
            return {"controls": [], "facts": {}}
        try:
            kept = json.loads(data)
            return {"controls": list(kept["controls"]), "facts": dict(kept["facts"])}
        except (ValueError, TypeError, KeyError) as e:
            raise StoreError(f"{self.path} is damaged: remove it; what it held is asked for again") from e

    def _write(self, kept: dict[str, Any]) -> None:
        try:
            places.write_file(self.path, json.dumps(kept).encode())
        except OSError as e:
            raise places.unwritten(self.path, e) from e
