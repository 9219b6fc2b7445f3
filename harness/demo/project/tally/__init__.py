"""Counts words."""

from tally.words import count

__all__ = ["count"]
