"""Secrets by shape: what keys and tokens of well-known makers look like.

The one rule: a rule is tried only where its hint (a few literal bytes) was found, and every repetition is
bounded and possessive, so that no log can make it slow. Hashes and ordinary prose are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Shape:
    """`pattern` is matched where a hint was found, group 1 (or all) is the secret; `most_bytes` bounds it.
    `fold`: the hints are lower case and found in any case. `plugins`: a detect-secrets detector."""

    kind: str
    hints: tuple[bytes, ...]
    pattern: re.Pattern[bytes] | None
    most_bytes: int
    fold: bool = False
    plugins: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to `end` are a secret of that kind; `known` is its number among those known by value.
    `since`: where what makes it known begins (the word before it), if that is before `start`."""

    start: int
    end: int
    kind: str
    known: int = -1
    since: int = -1

    @property
    def first(self) -> int:
        return self.since if 0 <= self.since < self.start else self.start


def _shape(kind: str, hints: str, pattern: str, most_bytes: int) -> Shape:
    return Shape(kind, tuple(hints.encode().split()), re.compile(pattern.encode()), most_bytes)


def _folded(kind: str, hints: str, pattern: str, most_bytes: int) -> Shape:
    return Shape(kind, tuple(hints.encode().split()), re.compile(pattern.encode()), most_bytes, fold=True)


def _plugin(kind: str, hints: str, most_bytes: int, plugins: str) -> Shape:
    return Shape(kind, tuple(hints.encode().split()), None, most_bytes, plugins=plugins)


_TOKEN = "[A-Za-z0-9._~+/=-]"
_PEM = (
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"""(?:(?:[A-Za-z0-9+/=\s\\"',:.>|()]|-(?!----)){1,20000}+-----END [A-Z0-9 ]{1,60}-----"""
    r"|(?:[^A-Za-z0-9+/]{1,40}[A-Za-z0-9+/=]{16,200}+){1,400}+)"
)
_JWT = r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4096}+\.[A-Za-z0-9_-]{8,8192}+\.[A-Za-z0-9_-]{8,1400}+"
_AWS = r"(?i:secret_?access_?key)\W{1,10}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
# Shorter values are prose ("basic authentication") unless a digit or padding is in them.
_AUTHORIZATION = (
    r"(?i:authorization\W{1,8}(?:bearer|token|basic|bot)[\s\"']{1,4})"
    rf"((?={_TOKEN}{{16}}|[A-Za-z._~+/-]{{0,16}}[0-9=]){_TOKEN}{{8,4096}}+)"
)
_BEARER = rf"(?i:bearer\s{{1,4}})(?=[A-Za-z._~+/=-]{{0,400}}[0-9])({_TOKEN}{{20,4096}}+)"
_GITLAB = "glpat- gldt- glft- glsoat- glrt- glcbt- glimt- glptt- glagent- gloas-"

# Installation tokens (ghs_) have about 520 characters now, with dots and dashes: no fixed length here.
SHAPES: tuple[Shape, ...] = (
    _shape("private-key", "-----BEGIN", _PEM, 22000),
    _shape(
        "github-token", "ghp_ gho_ ghs_ ghu_ ghr_", r"gh[opsur]_[A-Za-z0-9._-]{35,2048}[A-Za-z0-9_-]", 2100
    ),
    _shape("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{30,255}+", 300),
    _shape("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,512}+", 600),
    _shape(
        "openai-key",
        "sk-proj- sk-svcacct- sk-admin- sk-or-v1-",
        r"sk-[a-z0-9-]{5,8}[A-Za-z0-9_-]{20,512}+",
        600,
    ),
    _shape("openai-key", "sk-", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9]{40,128}+", 160),
    _shape("aws-key", "AKIA ASIA ABIA ACCA", r"A[KSBC][IC]A[0-9A-Z]{16}", 20),
    _folded("aws-secret", "secret_access_key secretaccesskey", _AWS, 80),
    _shape("google-key", "AIza", r"AIza[0-9A-Za-z_-]{35}", 39),
    _shape("google-key", "ya29.", r"ya29\.[0-9A-Za-z._-]{20,1024}+", 1100),
    _shape("google-key", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,64}+", 80),
    _shape("slack-token", "xox", r"xox[abceoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{10,400}+", 420),
    _shape("slack-token", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{10,400}+", 420),
    _shape(
        "slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/[a-z]{1,20}/([A-Za-z0-9/_]{20,200}+)", 240
    ),
    _shape("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}", 40),
    _shape("jwt", "eyJ", _JWT, 13800),
    _folded("authorization", "authorization", _AUTHORIZATION, 4200),
    _folded("bearer", "bearer", _BEARER, 4200),
    _folded(
        "api-key",
        "x-api-key private-token",
        rf"(?i:x-api-key|private-token)\W{{1,8}}({_TOKEN}{{16,512}}+)",
        600,
    ),
    _shape("url-password", "://", r"""://[^/\s:@"'<>\[\]]{0,128}+:([^@\s/"'<>\[\]${}*]{3,512}+)@""", 660),
    _shape("url-password", "://", r"://([A-Za-z0-9_-]{20,256}+)@", 280),
    _plugin("gitlab-token", _GITLAB, 1100, "gitlab_token.GitLabTokenDetector"),
    _plugin("stripe-key", "sk_live_ rk_live_", 200, "stripe.StripeDetector"),
    _plugin("sendgrid-key", "SG.", 80, "sendgrid.SendGridDetector"),
    _plugin("square-key", "sq0csp-", 60, "square_oauth.SquareOAuthDetector"),
    _plugin("package-index-token", "pypi-Ag", 400, "pypi_token.PypiTokenDetector"),
    _plugin("azure-key", "AccountKey=", 110, "azure_storage_key.AzureStorageKeyDetector"),
)

WEAK = frozenset({"jwt", "authorization", "bearer", "api-key", "url-password"})
"""Kinds that documentation and tests are full of examples of."""

_REST = re.compile(rb"[A-Za-z0-9_-]{0,2048}")


def find(data: bytes) -> Iterator[Span]:
    """Every secret by shape. Spans of different rules may overlap."""
    low = data.lower()
    for shape in SHAPES:
        hay = low if shape.fold else data
        for hint in shape.hints:
            at = hay.find(hint)
            while at >= 0:
                found = match(shape, data, at)
                if found:
                    yield Span(*found, shape.kind, since=at)
                at = hay.find(hint, max(found[1], at + 1) if found else at + 1)


def open_since(data: bytes, end_slack: int = 64) -> int:
    """Where the first shape begins that more bytes could complete or make longer; or the data's length."""
    low = data.lower()
    size = len(data)
    first = size
    for shape in SHAPES:
        hay = low if shape.fold else data
        for hint in shape.hints:
            at = hay.find(hint, max(0, size - shape.most_bytes))
            while 0 <= at < first:
                found = match(shape, data, at)
                if not found or found[1] + end_slack > size:
                    first = at
                at = hay.find(hint, at + 1)
    return first


def match(shape: Shape, data: bytes, at: int) -> tuple[int, int] | None:
    if shape.pattern is not None:
        m = shape.pattern.match(data, at)
        return m.span(m.lastindex or 0) if m else None
    for pattern in _rules(shape.plugins):
        m = pattern.match(data, at)
        if m:
            rest = _REST.match(data, m.end())
            return m.start(), rest.end() if rest else m.end()
    return None


@lru_cache(maxsize=32)
def _rules(name: str) -> tuple[re.Pattern[bytes], ...]:
    """The patterns of a detect-secrets detector, for bytes. Loaded at the first hint: loading is slow."""
    module, _, cls = name.partition(".")
    detector = getattr(import_module(f"detect_secrets.plugins.{module}"), cls)
    keep = re.IGNORECASE | re.VERBOSE
    return tuple(re.compile(p.pattern.encode(), p.flags & keep) for p in detector.denylist)
