"""The one error of a start."""

from __future__ import annotations


class StartError(Exception):
    """The director cannot start: one line that says what, where, and what to do. `code` is the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code
