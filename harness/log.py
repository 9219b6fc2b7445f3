"""Logging: one pipeline for our own lines and for every library's, one sink, and no secret behind it.

The one rule: what is written passes the redactor as a finished line, in the one sink that everything shares.
Tracebacks show frames, never the values of variables. Text from outside cannot forge a line or colour one.
"""

from __future__ import annotations

import logging
import sys
import threading
import unicodedata
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from structlog.typing import Processor

LINE_LIMIT = 64 << 10
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Libraries that tell every request and every command: shown from warnings on, unless all is asked for.
QUIET = ("urllib3", "docker", "github", "git", "httpx", "httpcore", "asyncio", "websockets", "uvicorn")


class Redacts(Protocol):
    def text(self, s: str) -> str: ...


class Sink:
    """Where every line goes, a stream to those who write. `lost` counts the lines that could not be written:
    a full disk or a closed pipe must not end a director."""

    def __init__(self, redactor: Redacts, stream: TextIO) -> None:
        self.lost = 0
        self._redactor = redactor
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, line: str) -> int:
        shown = self._redactor.text(line)
        if len(shown) > LINE_LIMIT:
            shown = f"{shown[:LINE_LIMIT]} … {len(shown) - LINE_LIMIT} characters more\n"
        with self._lock:
            try:
                self._stream.write(shown)
                self._stream.flush()
            except (OSError, ValueError):
                self.lost += 1
        return len(line)

    def flush(self) -> None:
        """Each line is flushed as it is written."""


class Handler(logging.StreamHandler[Any]):
    """The root's one handler. A record that cannot be formatted is told of without its arguments."""

    def handleError(self, record: logging.LogRecord) -> None:
        kind = type(sys.exc_info()[1]).__name__
        where = f"{record.name} (line {record.lineno})"
        self.stream.write(f"a log record of {where} could not be formatted: {kind}\n")


def setup(redactor: Redacts, *, json: bool, stream: TextIO, level: str = "info") -> Sink:
    """From now on structlog's loggers, the standard library's and what nobody caught write to `stream`, as
    JSON documents or as lines for people. May be called again."""
    import structlog

    sink = Sink(redactor, stream)
    chain = _chain(json)
    render: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False, default=_plain)
        if json
        else structlog.dev.ConsoleRenderer(
            colors=False,
            exception_formatter=structlog.dev.plain_traceback,
            timestamp_key="ts",
            pad_event_to=0,
        )
    )
    structlog.configure(
        processors=[*chain, render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sink),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    handler = Handler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(), *chain],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
            keep_exc_info=False,
            keep_stack_info=False,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
    # Off first: whoever turned it on before may have been undone since, and then "on" would do nothing.
    logging.captureWarnings(False)
    logging.captureWarnings(True)
    _catch_the_rest()
    return sink


def _chain(json: bool) -> list[Processor]:
    import structlog

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _as_is if json else _escaped,
    ]


def _as_is(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event


def _escaped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Control and direction characters of all values as escapes; a traceback keeps its lines, indented."""
    for key, value in event.items():
        if key in ("_record", "_from_structlog"):
            continue
        if key in ("exception", "stack"):
            event[key] = "\n".join(f"    {escape(line)}" for line in str(value).split("\n"))
        elif isinstance(value, str):
            event[key] = escape(value)
    return event


def escape(text: str) -> str:
    """Printable: what would move the cursor, change colours, turn the writing or end the line is spelled."""
    if text.isprintable():
        return text
    shown = (c if c.isprintable() or unicodedata.category(c) == "Zs" else _spelled(c) for c in text)
    return "".join(shown)


def _spelled(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")


def _plain(value: Any) -> str:
    """A value that JSON has no form for: its type only; a repr may hold what nobody meant to log."""
    return f"<{type(value).__name__}>"


def _catch_the_rest() -> None:
    """What nobody caught is logged like everything else, instead of printed past the redactor."""
    log = logging.getLogger("harness")

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("nobody caught this", exc_info=(kind, error, trace))

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread else "a thread"
            log.critical("nobody caught this in %s", name, exc_info=args.exc_value)

    sys.excepthook = hook
    threading.excepthook = in_thread
