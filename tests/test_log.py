"""The log: no secret in any line of it, from us or from a library, as JSON or for people."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
import structlog

from harness.core.redact import Redactor
from harness.log import LINE_LIMIT, QUIET, Sink, setup

SECRET = "S3cr3t/value+42="


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, sys.excepthook, threading.excepthook
    levels = {n: logging.getLogger(n).level for n in QUIET}
    yield
    root.handlers[:], root.level, sys.excepthook, threading.excepthook = before
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def started(json_lines: bool, level: str = "debug") -> tuple[Sink, io.StringIO]:
    stream = io.StringIO()
    return setup(Redactor((SECRET,)), json=json_lines, stream=stream, level=level), stream


def fail(token: str) -> None:
    raise RuntimeError(f"refused: {token}")


@pytest.mark.parametrize("json_lines", [True, False])
def test_no_line_holds_a_secret(json_lines: bool) -> None:
    _, stream = started(json_lines)
    try:
        fail(SECRET)
    except RuntimeError:
        structlog.get_logger().exception("ours", token=SECRET, nested={"a": [SECRET]})
        logging.getLogger("some.library").exception("theirs %s", SECRET)
    logging.getLogger("urllib3.connectionpool").debug("GET /?token=%s", "S3cr3t%2Fvalue%2B42%3D")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(SECRET, stacklevel=1)
    out = stream.getvalue()
    assert SECRET not in out and "S3cr3t" not in out
    assert out.count("[redacted:secret:") >= 7
    assert "RuntimeError: refused: [redacted" in out
    assert "token = " not in out and "locals" not in out


@pytest.mark.parametrize("json_lines", [True, False])
def test_what_nobody_caught_goes_the_same_way(json_lines: bool) -> None:
    _, stream = started(json_lines)
    thread = threading.Thread(target=fail, args=(SECRET,), name="pump")
    thread.start()
    thread.join()
    assert "nobody caught this in pump" in stream.getvalue()
    assert "S3cr3t" not in stream.getvalue()


def test_a_process_that_dies_prints_no_secret() -> None:
    code = (
        "import sys; from harness.log import setup; from harness.core.redact import Redactor\n"
        f"token = '{SECRET}'; setup(Redactor((token,)), json=False, stream=sys.stderr)\n"
        "raise ValueError(f'bad token {token}')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "ValueError: bad token [redacted:secret:" in ran.stderr
    # The source line of the traceback is shown; the value in it would be too, were it not redacted.
    assert "S3cr3t" not in ran.stderr + ran.stdout


def test_a_json_line_is_one_document() -> None:
    _, stream = started(True)
    structlog.get_logger().info("said\nfake line", n=3, odd=object(), name="検索")
    logging.getLogger("a.b").warning("hm %d", 7, extra={"issue": 12})
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["event"] == "said\nfake line" and first["n"] == 3 and first["odd"] == "<object>"
    assert first["level"] == "info" and first["ts"].endswith("Z") and first["name"] == "検索"
    assert second["event"] == "hm 7" and second["logger"] == "a.b" and second["issue"] == 12


def test_a_line_for_people_cannot_be_forged() -> None:
    _, stream = started(False)
    structlog.get_logger().info("said\n2026-01-01T00:00:00Z [info] all is well", by="x\x1b[2Jy\u202ez")
    logging.getLogger("a").info("one\rtwo")
    out = stream.getvalue()
    assert len(out.splitlines()) == 2
    assert "\\n2026" in out and "\\x1b[2J" in out and "\\u202e" in out and "\\r" in out
    assert "\x1b" not in out and "\u202e" not in out


def test_a_traceback_for_people_is_indented() -> None:
    _, stream = started(False)
    try:
        fail("x\n2026-01-01T00:00:00Z [info] all is well")
    except RuntimeError:
        logging.getLogger("a").exception("failed")
    assert [x for x in stream.getvalue().splitlines() if x.startswith("2026-01-01")] == []


def test_a_record_that_cannot_be_formatted_hides_its_arguments() -> None:
    _, stream = started(True)
    logging.getLogger("a.b").info("%d", SECRET)
    assert stream.getvalue().startswith("a log record of a.b (line ")
    assert stream.getvalue().endswith("could not be formatted: TypeError\n")


def test_libraries_are_quiet_unless_all_is_asked_for() -> None:
    _, stream = started(True, "info")
    logging.getLogger("urllib3.connectionpool").info("a connection")
    logging.getLogger("urllib3.connectionpool").warning("a retry")
    logging.getLogger("harness.gateway").debug("detail")
    structlog.get_logger().debug("detail")
    assert [json.loads(x)["event"] for x in stream.getvalue().splitlines()] == ["a retry"]


def test_a_stream_that_is_gone_costs_the_line_only() -> None:
    sink, stream = started(True)
    stream.close()
    structlog.get_logger().info("nobody hears this")
    logging.getLogger("a").error("nor this")
    assert sink.lost == 2


def test_a_long_line_is_cut_after_it_was_redacted() -> None:
    _, stream = started(False)
    structlog.get_logger().info("x" * (LINE_LIMIT - 60) + SECRET * 3)
    out = stream.getvalue()
    assert len(out) < LINE_LIMIT + 100 and "S3cr3t" not in out and "characters more" in out


def test_setting_up_again_does_not_write_twice() -> None:
    started(True)
    _, stream = started(True)
    logging.getLogger("a").info("once")
    assert len(stream.getvalue().splitlines()) == 1
