"""A secret as the configuration knows it: where it is, never what it is.

The one rule: it is read when it is used, so that a new one counts without a restart, and nothing keeps it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.config.errors import ConfigError

_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Secret:
    """`key` is its place in the configuration without the ending: `forge.token` for token_env and token_file.
    A file wins over a variable."""

    key: str
    env: str = ""
    file: str = ""

    def __bool__(self) -> bool:
        """Whether the configuration says where it is; not whether it is there."""
        return bool(self.env or self.file)

    def read(self, environ: Mapping[str, str] | None = None) -> str:
        """The secret now. Raises ConfigError, which names the variable or file and never shows content."""
        if self.file:
            return self._from_file(Path(self.file).expanduser())
        if not self.env:
            raise ConfigError(
                f"{self.key} is not set: name a variable in {self.key}_env or a file in {self.key}_file"
            )
        value = (os.environ if environ is None else environ).get(self.env, "").strip()
        if not value:
            raise ConfigError(f"{self.key}_env: the environment variable {self.env} is not set or empty")
        return value

    def _from_file(self, path: Path) -> str:
        try:
            # A pipe or a device would be waited for.
            if not stat.S_ISREG(path.stat().st_mode):
                raise ConfigError(f"{self.key}_file: {path} is not a regular file")
            with path.open("rb") as file:
                value = file.read(_LIMIT_BYTES).decode().strip()
        except OSError as e:
            raise ConfigError(f"{self.key}_file: {path}: {e.strerror}") from e
        except UnicodeDecodeError as e:
            raise ConfigError(f"{self.key}_file: {path} is not text") from e
        if not value:
            raise ConfigError(f"{self.key}_file: {path} is empty")
        return value
