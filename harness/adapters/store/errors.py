"""What a store raises when it cannot be used at all, or when a call has no Result to say so with.

The one rule: the text is one line that names the file, what is wrong with it, and what to do.
"""

from __future__ import annotations

from harness.failures import Failure


class StoreError(Exception):
    """`failure` is a class of the one failure table, for whoever must go on all the same."""

    def __init__(self, message: str, failure: Failure = Failure.INFRA_ENGINE) -> None:
        super().__init__(message)
        self.failure = failure


class StoreMissing(StoreError):
    """The file is not there, and there was one."""
