"""The embedded GitHub-compatible forge: demo, tests, offline work and fault injection.

It keeps one rule: whatever a client can see (rows, refs, events) is real state in SQLite and bare
repositories, so a caller may assert on the world instead of on calls. Nothing heavy is imported until used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.forge.errors import ForgeError

if TYPE_CHECKING:
    from harness.forge.seeds import Issue, User, seed
    from harness.forge.server import Forge, main_serve, serve
    from harness.forge.settings import Settings
    from harness.forge.snapshot import dump

__all__ = ["Forge", "ForgeError", "Issue", "Settings", "User", "dump", "main_serve", "seed", "serve"]

_HOME = {
    "Forge": "server",
    "serve": "server",
    "main_serve": "server",
    "seed": "seeds",
    "User": "seeds",
    "Issue": "seeds",
    "Settings": "settings",
    "dump": "snapshot",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562), so that importing the package costs next to nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
