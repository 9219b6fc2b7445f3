"""What a model's provider or an agent says when it cannot go on, recognised in plain text.

The one rule: an agent that exits 0 is believed to report a limit only when a line *begins* like such a
report; "I added the rate limit" is work. With a failing exit the words may stand anywhere near the end.

Sources: the replies of the Anthropic and OpenAI APIs, and the messages of the agents' command lines.
"""

from __future__ import annotations

import re

_ANYWHERE = tuple(
    (status, re.compile("|".join(words), re.IGNORECASE | re.MULTILINE))
    for status, words in (
        (
            "quota",
            (
                "insufficient_quota",
                "exceeded your current quota",
                "quota exceeded",
                "credit balance is too low",
            ),
        ),
        (
            "context",
            (
                "prompt is too long",
                "context_length_exceeded",
                "maximum context length",
                "ran out of room in the model's context",
                "context window (?:exceeded|exhausted|is full)",
                "ContextWindowExceededError",
            ),
        ),
        (
            "rate_limited",
            (
                r"rate[ _-]?limit(?:ed|s)?(?: was| has been)? (?:reached|exceeded|error)",
                r"rate_limit_(?:error|exceeded)",
                r"RateLimitError",
                r"429 too many requests",
                r"(?:status|code|error|http)[: ]+429\b",
                r"exceed your .{0,60}rate limit",
                r"(?:you['’]ve|you have) hit your .{0,20}limit",
                r"usage limit reached",
                r"has rate limited you",
            ),
        ),
        (
            "auth",
            (
                r"please run /login",
                r"(?:invalid|incorrect) (?:x-)?api[ -]key",
                r"invalid_api_key",
                r"authentication_?error",
                r"(?:status|code|error|http)[: ]+40[13]\b",
                r"401 unauthorized",
                r"token (?:has|is) expired",
                r"invalid authentication credentials",
            ),
        ),
        (
            "overloaded",
            (
                r"overloaded_error",
                r"\boverloaded\W*$",
                r"experiencing high demand",
                r"(?:status|code|error|http)[: ]+5(?:00|02|03|04|29)\b",
                r"service unavailable",
                r"InternalServerError",
            ),
        ),
        (
            "connection",
            (
                r"connection ?refused",
                r"ECONNREFUSED|ECONNRESET",
                r"connection reset",
                r"unable to connect to",
                r"stream (?:disconnected|closed) before",
                r"network is unreachable",
                r"could not resolve host|failure in name resolution",
                r"error sending request",
            ),
        ),
        (
            "sandbox",
            (r"bwrap: ", r"no permissions to create (?:a )?new namespace", r"sandbox (?:failed|denied)"),
        ),
    )
)
_REPORTS = tuple(
    (status, re.compile(rf"^\W{{0,4}}(?:error:? +)?(?:{'|'.join(words)})", re.IGNORECASE))
    for status, words in (
        (
            "quota",
            (
                r"(?:api error:? .{0,20})?(?:you exceeded your current quota|credit balance is too low)",
                r"quota exceeded\. check",
            ),
        ),
        (
            "context",
            (
                r"(?:api error:? .{0,20})?prompt is too long(?:: \d|\W*$)",
                r"codex ran out of room in the model's context",
                r"litellm\.ContextWindowExceededError",
            ),
        ),
        (
            "rate_limited",
            (
                r"api error:? .{0,20}(?:429\b|rate limit|rate_limit_error)",
                r"rate limit (?:reached|exceeded)(?:\W*$|[:.,;] | for | \()",
                r"you['’]ve hit your .{0,20}limit",
                r"(?:claude (?:ai )?)?usage limit reached",
                r"litellm\.RateLimitError",
                r"exceeded retry limit, last status: 429",
                r"(?:http )?429 too many requests",
            ),
        ),
        (
            "auth",
            (
                r"please run /login",
                r"(?:invalid api key|not logged in)\W*(?:$|please)",
                r"api error:? .{0,20}40[13]\b",
                r"unexpected status 40[13]\b",
                r"litellm\.AuthenticationError",
            ),
        ),
        (
            "overloaded",
            (
                r"api error:? .{0,20}(?:5\d\d\b|overloaded)",
                r"overloaded\W*$",
                r"litellm\.InternalServerError",
            ),
        ),
        ("connection", (r"api error:? .{0,40}connect", r"litellm\.APIConnectionError")),
    )
)
_LAST_LINES = 3
_LINE_LIMIT = 600
_TEXT_LIMIT = 4096
_AFTER = re.compile(
    r"(?:retry[- _]after|try again in|retry in|retrying after|resets? in)[\"':= ]*"
    r"(?:about )?(\d{1,7}(?:\.\d{1,3})?) ?(ms|milliseconds?|s\b|sec\w*|m\b|min\w*|h\b|hours?)?",
    re.IGNORECASE,
)
_UNITS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "h": 3600.0}


def recognise(text: str) -> str:
    """The status that an error text speaks of, or "" where none does. Only its two ends are looked at."""
    ends = text if len(text) <= 2 * _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}\n{text[-_TEXT_LIMIT:]}"
    for status, words in _ANYWHERE:
        if words.search(ends):
            return status
    return ""


def recognise_report(text: str) -> tuple[str, str]:
    """(status, line) where one of the last lines begins like a report; ("", "") for ordinary words."""
    lines = [line.strip() for line in text[-_TEXT_LIMIT:].splitlines() if line.strip()][-_LAST_LINES:]
    for line in reversed(lines):
        for status, words in _REPORTS:
            if len(line) <= _LINE_LIMIT and words.search(line):
                return status, line
    return "", ""


def retry_after_s(text: str) -> float | None:
    """The wait that the text asks for, in seconds. A time of day is not understood: that takes a clock."""
    found = _AFTER.search(text)
    if not found:
        return None
    unit = (found[2] or "s").lower()
    if unit.startswith("milli"):
        unit = "ms"
    scale = _UNITS.get(unit[:2], _UNITS.get(unit[:1], 1.0))
    return float(found[1]) * scale
