"""The kinds of values that more than one section has: seconds, counts, sizes, addresses.

The one rule: a value means one thing. Sizes are bytes inside ("4g" is how people write them), times seconds.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_SIZE = re.compile(r"([0-9]+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_REPO = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_PERSON = re.compile(r"[^<>\n]+ <[^<>@\s]+@[^<>\s]+>")
_REF_PART = re.compile(r"[A-Za-z0-9._{}-]+(/[A-Za-z0-9._{}-]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Section(BaseModel):
    """A table of the file: frozen, its types taken literally, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def parse_size(value: Any) -> Any:
    """Bytes of "512m", "4g", "64 KiB" or a whole number; anything else is left for the type check."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError('expected a size such as "512m" or "4g"')
    return int(found[1]) << _POWERS[found[2].lower()]


def size_text(size_bytes: int) -> str:
    """The shortest way to write a size down."""
    for unit in "tgmk":
        if size_bytes and size_bytes % (1 << _POWERS[unit]) == 0:
            return f"{size_bytes >> _POWERS[unit]}{unit}"
    return str(size_bytes)


def _url(value: str) -> str:
    if not value:
        return value
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        secret = parts.password is not None or parts.username is not None
    except ValueError:
        good, secret = False, False
    if secret:
        raise ValueError("expected a URL without a user or password in it")
    if not good:
        raise ValueError("expected a URL that begins with https:// or http://")
    return value.rstrip("/")


def _matching(pattern: re.Pattern[str], what: str) -> Any:
    def check(value: str) -> str:
        if value and not pattern.fullmatch(value):
            raise ValueError(f"expected {what}")
        return value

    return AfterValidator(check)


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and (not host or not port.isdigit() or not 0 <= int(port) <= 65535):
        raise ValueError('expected HOST:PORT, for example "127.0.0.1:8765"')
    return value


def _commands(value: tuple[str, ...]) -> tuple[str, ...]:
    if any(not command.strip() for command in value):
        raise ValueError("expected no empty command")
    return value


def _version(value: str) -> str:
    if "{version}" not in value:
        raise ValueError('expected the word "{version}" in it')
    return value


Seconds = Annotated[float, Field(gt=0, le=366 * 86400)]
Pause = Annotated[float, Field(ge=0, le=86400)]
Count = Annotated[int, Field(ge=1, le=100_000)]
Cap = Annotated[int, Field(ge=0, le=10**12)]
Dollars = Annotated[float, Field(ge=0, le=10**6)]
Share = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[int, BeforeValidator(parse_size), Field(ge=1, le=1 << 50)]
OptionalSize = Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=1 << 50)]
Url = Annotated[str, AfterValidator(_url)]
RepoName = Annotated[str, _matching(_REPO, 'OWNER/NAME, for example "acme/widget"')]
Person = Annotated[str, _matching(_PERSON, '"Name <mail@example.org>"')]
Variable = Annotated[str, _matching(_VARIABLE, "the name of an environment variable, not its value")]
RefPart = Annotated[str, Field(min_length=1), _matching(_REF_PART, "letters, digits and . _ - /")]
Versioned = Annotated[RefPart, AfterValidator(_version)]
Listen = Annotated[str, AfterValidator(_listen)]
Commands = Annotated[tuple[Annotated[str, Field(max_length=10_000)], ...], AfterValidator(_commands)]
Texts = tuple[str, ...]
