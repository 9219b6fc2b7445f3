"""What a configuration that cannot be used raises.

The one rule: one line for people, and never a value that could be a secret.
"""

from __future__ import annotations


class ConfigError(Exception):
    """The text names the file (and line) or the key, what is wrong, and what is expected."""
