"""A machine that is short of something just now: one file cannot be opened, and it is there all the same."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def cannot_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """EMFILE, and only for this path."""
    opened = os.open

    def refused(at: Any, *more: Any, **options: Any) -> int:
        if at == path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(at))
        return opened(at, *more, **options)

    with monkeypatch.context() as m:
        m.setattr(os, "open", refused)
        yield
