"""How a test uses the commands: as processes of their own, on a demo's folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Demo:
    """A demo's folder. `document` is what the demo printed, None for a copy."""

    folder: Path
    document: Any = None

    @property
    def config(self) -> Path:
        return self.folder / "harness.toml"

    def change(self, **sections: dict[str, Any]) -> None:
        """Change keys of its configuration: `change(director={"max_workers": 1})`."""
        found = tomllib.loads(self.config.read_text())
        for name, keys in sections.items():
            found.setdefault(name, {}).update(keys)
        self.config.write_text(tomli_w.dumps(found))


def environment(**more: str) -> dict[str, str]:
    """What a command sees of ours: no token of this machine, and this clone before whatever is installed."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("HARNESS_", "GITHUB_", "GH_", "OPENAI_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def start(*args: object, cwd: Path, **more: str) -> subprocess.Popen[str]:
    """`harness ARGS` as a process of its own."""
    command = [sys.executable, "-m", "harness", *(str(a) for a in args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment(**more), stdout=pipe, stderr=pipe, text=True)


def run(*args: object, cwd: Path, timeout_s: float = 120.0, **more: str) -> Ran:
    process = start(*args, cwd=cwd, **more)
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return Ran(process.returncode, out, err)
