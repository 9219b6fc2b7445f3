"""TOML in, frozen models out; or one line that says where the file is wrong and what is expected there.

The one rule: `${VARIABLE}` is expanded exactly once, in values of the operator's file only, and the value of
a variable is never shown. `$$` is a dollar; every other `$` stands for itself.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.config.errors import ConfigError
from harness.config.models import Config, RepositoryConfig

LIMIT_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
Place = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_AT = re.compile(r"^(.*?) \(at (?:line (\d+), column \d+|end of document)\)$", re.DOTALL)
_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)

# What cannot change while it is in use: the state's place, the identity, the sockets.
RESTART = (
    "director.data_dir",
    "containers.runtime",
    "containers.docker_host",
    "containers.host_data_dir",
    "forge.kind",
    "forge.url",
    "forge.repo",
    "forge.app_id",
    "forge.label_prefix",
    "forge.branch_prefix",
    "release.mode",
    "store.url",
    "store.limit",
    "gateway.listen",
    "gateway.socket_dir",
    "audit.dir",
)


def load(path: Path | str, environ: Mapping[str, str] | None = None) -> Config:
    """The operator's configuration. Raises ConfigError with one line."""
    return parse(_read(Path(path)), str(path), environ)


def load_repository(path: Path | str) -> RepositoryConfig:
    """A repository's `.harness.toml`; a file that is not there is an empty one."""
    return parse_repository(_read(Path(path)), str(path)) if os.path.lexists(path) else RepositoryConfig()


def parse(data: bytes, name: str, environ: Mapping[str, str] | None = None) -> Config:
    """The operator's configuration from a file's bytes; `name` is what messages call it."""
    text, table = _toml(data, name)
    written: dict[Place, str] = {}
    try:
        expanded = _expand(table, os.environ if environ is None else environ, written)
    except _Missing as e:
        where = f"{name}{_line(text, e.place)}: {_dotted(e.place)}"
        raise ConfigError(f"{where}: the environment variable {e.variable} is not set") from None
    config = _model(Config, expanded, text, name)
    config._written = written
    return config


def parse_repository(data: bytes, name: str) -> RepositoryConfig:
    text, table = _toml(data, name)
    return _model(RepositoryConfig, _tuples(table), text, name)


def reload(old: Config, path: Path | str) -> tuple[Config | ConfigError, tuple[str, ...]]:
    """The file read again: the new configuration, or the error for which the old one stays in force (also
    where it has become empty, or lacks what a director needs). Keys that need a restart keep their old values
    in the new one, and are named."""
    try:
        new = load(path)
    except ConfigError as e:
        return e, ()
    if lacks := [line for line in new.missing() if line not in old.missing()]:
        return ConfigError(f"{path}: {lacks[0]}"), ()
    kept = []
    for key in RESTART:
        section, _, field = key.partition(".")
        before, after = getattr(old, section), getattr(new, section)
        if getattr(before, field) != getattr(after, field):
            kept.append(key)
            section_kept = after.model_copy(update={field: getattr(before, field)})
            written = {k: v for k, v in new._written.items() if k != (section, field)}
            if (section, field) in old._written:
                written[section, field] = old._written[section, field]
            new = new.model_copy(update={section: section_kept})
            new._written = written
    return new, tuple(kept)


# ---------------------------------------------------------------- bytes and TOML


def _read(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a regular file")
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there: `harness init` writes one") from None
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}") from e
    if len(data) > LIMIT_BYTES:
        raise ConfigError(f"{path} has more than {LIMIT_BYTES} bytes")
    return data


def _toml(data: bytes, name: str) -> tuple[str, dict[str, Any]]:
    """The text (for line numbers) and the table."""
    try:
        text = data.removeprefix(BOM).decode()
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise ConfigError(f"{name}:{line}: not UTF-8: save the file in that encoding") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        found = _AT.match(str(e))
        what = found[1] if found else str(e)
        line = int(found[2]) if found and found[2] else text.rstrip().count("\n") + 1
        if what == "Cannot overwrite a value":
            what = "the same key twice: keep one of them"
        elif what.startswith(("Cannot declare", "Cannot mutate")):
            what = f"the same table twice ({what[0].lower()}{what[1:]}): keep one of them"
        else:
            what = f"not TOML: {what}"
        raise ConfigError(f"{name}:{line}: {what}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None


class _Missing(Exception):
    def __init__(self, place: Place, variable: str) -> None:
        super().__init__(variable)
        self.place, self.variable = place, variable


def _expand(value: Any, environ: Mapping[str, str], written: dict[Place, str], place: Place = ()) -> Any:
    """Variables in place of their names, lists as tuples. `written` gets what stood where a variable was."""
    if isinstance(value, dict):
        return {k: _expand(v, environ, written, (*place, k)) for k, v in value.items()}
    if isinstance(value, list):
        return tuple(_expand(v, environ, written, (*place, n)) for n, v in enumerate(value))
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        if found[2] not in environ:
            raise _Missing(place, found[2])
        written[place] = value
        return environ[found[2]]

    return _VARIABLE.sub(one, value)


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


# ---------------------------------------------------------------- models and messages


def _model(model: type[M], table: dict[str, Any], text: str, name: str) -> M:
    try:
        return model.model_validate(table)
    except ValidationError as e:
        errors = e.errors(include_url=False, include_input=False)
        # An unknown key first: it often explains the others.
        first = min(errors, key=lambda d: d["type"] != "extra_forbidden")
        place: Place = tuple(p for p in first["loc"])
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        what = _unknown(model, place) if first["type"] == "extra_forbidden" else _expected(first)
        raise ConfigError(f"{name}{_line(text, place)}: {_dotted(place)}: {what}{more}") from None


_TYPES = {
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text in quotes",
    "tuple_type": "expected a list in brackets",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "missing": "this key is needed here",
    "finite_number": "expected a finite number",
}


def _expected(error: ErrorDetails) -> str:
    """What should stand there. Never what does: it may be a secret in the wrong place."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "value_error":
        return str(context.get("error", error["msg"]))
    if kind in ("greater_than_equal", "greater_than"):
        bound = f"at least {context['ge']}" if "ge" in context else f"more than {context['gt']}"
        return f"expected {bound}"
    if kind in ("less_than_equal", "less_than"):
        return f"expected at most {context.get('le', context.get('lt'))}"
    if kind == "literal_error":
        return f"expected one of {context['expected']}".replace("'", '"')
    if kind in ("string_too_short", "too_short"):
        return "expected at least one" if kind == "too_short" else "expected a text that is not empty"
    if kind == "string_pattern_mismatch":
        return f"expected a text that matches {context['pattern']}"
    return error["msg"][0].lower() + error["msg"][1:]


def _unknown(model: type[BaseModel], place: Place) -> str:
    """The nearest valid key: beside it, or the same word in another table."""
    wrong = str(place[-1])
    here: Any = model
    for part in place[:-1]:
        here = _inner(here, part)
    siblings = list(here.model_fields) if here else []
    if f"{wrong}_env" in siblings:
        return f"unknown key; a secret is never written here: use {wrong}_env or {wrong}_file"
    elsewhere = [path for path in keys(model) if path.rpartition(".")[2] == wrong]
    if elsewhere:
        table = elsewhere[0].rpartition(".")[0]
        return f"unknown key here; it belongs to [{table}]" if table else "unknown key here; it is a table"
    near = difflib.get_close_matches(wrong, siblings, 1, 0.6)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    close = difflib.get_close_matches(wrong, [p.rpartition(".")[2] for p in keys(model)], 1, 0.75)
    hint = f"; did you mean {next(p for p in keys(model) if p.endswith(close[0]))}?" if close else ""
    return f"unknown key{hint}" if hint else f"unknown key; valid here: {', '.join(siblings)}"


def _inner(model: Any, part: str | int) -> type[BaseModel] | None:
    """The model of a key's value, through lists, mappings and `| None`."""
    if isinstance(part, int) or model is None:
        return model  # type: ignore[no-any-return]
    field = model.model_fields.get(part)
    if field is None:
        return model if isinstance(model, type) else None
    return next(_models(field.annotation), None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a model, tables included."""
    for name, field in model.model_fields.items():
        yield prefix + name
        inner = next(_models(field.annotation), None)
        if inner is not None:
            yield from keys(inner, f"{prefix}{name}.")


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def _line(text: str, place: Place) -> str:
    """`:LINE` of a key, found by a plain scan; "" when it is written in a way that the scan does not see."""
    names = [str(p) for p in place if isinstance(p, str)]
    table: list[str] = []
    best, length = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parts(header[2])
            path = table
        elif key := _KEY.match(line):
            path = table + _parts(key[1])
        else:
            continue
        # The longest written beginning of the path: a key may stand inside an inline table or a list.
        if path == names[: len(path)] and len(path) > length:
            best, length = f":{number}", len(path)
    return best


def _parts(dotted: str) -> list[str]:
    return [p.strip().strip("\"'") for p in dotted.split(".")]
