"""The configuration as text: the full reference, and the short file that `harness init` writes.

The one rule: the reference is made from the models, so it names every key with its default and nothing else.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.config.errors import ConfigError
from harness.config.models import Config
from harness.config.reader import parse
from harness.config.types import parse_size, size_text

_HEAD = """\
# The operator's configuration: every key, its default, and what it is for. What you write yourself is a dozen
# lines; `harness init` proposes them. Unknown keys are refused. `harness config check` reads a file and says
# what is wrong with it; SIGHUP reads it again and says what needs a restart.
#
# In values, ${VARIABLE} is replaced once by the environment variable, $$ is a dollar sign, any other $ stands
# for itself. Secrets are named (…_env, …_file), never written here. Sizes are bytes, or "512m", "4g".
# Relative paths are relative to the working directory.
"""
_WIDTH = 108


def render() -> str:
    """The text of `config/dev.toml`."""
    parts = [_HEAD]
    for name, field in Config.model_fields.items():
        parts += _table(name, field.default)
    return "\n".join(parts)


def _table(name: str, section: BaseModel) -> list[str]:
    about = " ".join((type(section).__doc__ or "").split())
    keys: list[str] = []
    inner: list[str] = []
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            inner += _table(f"{name}.{key}", value)
        else:
            keys.append(_entry(key, field, value))
    head = [f"# {about}\n[{name}]\n" + "".join(keys)] if keys else []
    return [*head, *inner]


def _entry(key: str, field: FieldInfo, value: Any) -> str:
    choices = _choices(field.annotation)
    about = (field.description or "") + (f" ({' | '.join(choices)})" if choices else "")
    note = "".join(f"# {line}\n" for line in textwrap.wrap(about, _WIDTH))
    if any(parse_size is getattr(m, "func", None) for m in field.metadata) and value:
        value = size_text(value)
    return f"\n{note}{key} = {_value(value)}\n"


def _choices(annotation: Any) -> tuple[str, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _value(value: Any) -> str:
    import tomli_w

    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, tuple):
        items = [_value(v) for v in value]
        short = f"[{', '.join(items)}]"
        return short if len(short) < 80 else "[\n" + "".join(f"    {i},\n" for i in items) + "]"
    return tomli_w.dumps({"k": value}).removeprefix("k = ").rstrip("\n") if value != {} else "{}"


def write(path: Path, values: Mapping[str, Any]) -> str:
    """Write a new operator's file with these tables and answer its text. It is checked first; a file that is
    there already is never replaced. Raises ConfigError."""
    import tomli_w

    text = tomli_w.dumps(values)
    parse(text.encode(), str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise ConfigError(f"{path} is there already: remove it first, or edit it") from None
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}") from e
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(fd)
    return text


def main() -> None:
    """Write `config/dev.toml` anew: `python -m harness.config.reference config/dev.toml`."""
    import sys

    Path(sys.argv[1]).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
