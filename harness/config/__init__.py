"""Configuration: the operator's TOML file and the repository's `.harness.toml`, as frozen models.

The one rule: an unknown key, a wrong type or a limit that cannot work is refused at the border with one line
(file, line, key, what is expected). Importing this package is cheap; the models load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.config.errors import ConfigError

if TYPE_CHECKING:
    from harness.config.decisions import policy
    from harness.config.models import Config, RepositoryConfig
    from harness.config.reader import load, load_repository, parse, parse_repository, reload
    from harness.config.reference import render, write
    from harness.config.secrets import Secret

_PLACES = {
    "Config": "models",
    "RepositoryConfig": "models",
    "policy": "decisions",
    "load": "reader",
    "load_repository": "reader",
    "parse": "reader",
    "parse_repository": "reader",
    "reload": "reader",
    "render": "reference",
    "write": "reference",
    "Secret": "secrets",
}

__all__ = [
    "Config",
    "ConfigError",
    "RepositoryConfig",
    "Secret",
    "load",
    "load_repository",
    "parse",
    "parse_repository",
    "policy",
    "reload",
    "render",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"harness.config has no {name}")
    return getattr(import_module(f"harness.config.{_PLACES[name]}"), name)
