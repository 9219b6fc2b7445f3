"""`harness director`: the daemon."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.common import config_option, config_path, emit, json_option, load_config


@click.command(
    help="Run the director until it is told to stop (SIGTERM leaves the workers running for the next start)."
)
@config_option
@click.option("--once", is_flag=True, help="End after one look and what it begins.")
@click.option("--until-idle", is_flag=True, help="End when nothing more can be done without a person.")
@click.option("--dry-run", is_flag=True, help="Write nothing outside; show what would be written.")
@click.option(
    "--take-over", is_flag=True, help="Take a data folder whose owner on another host is surely gone."
)
@json_option
def command(
    config: str | None, once: bool, until_idle: bool, dry_run: bool, take_over: bool, as_json: bool
) -> int:
    from harness import log
    from harness.adapters.store.lease import refuse_held

    path = config_path(config)
    loaded = load_config(config)
    refuse_held(loaded.data_dir)
    from harness.compose import heap  # heavy: a second director is refused before it loads this

    heap.settle()

    running, made = _start(loaded, dry_run, take_over)
    as_lines = loaded.log.format == "json" or (loaded.log.format == "auto" and not sys.stderr.isatty())
    log.setup(running.redactor, json=as_lines, stream=sys.stderr, level=loaded.log.level)
    for m in made.machines if made else ():
        _say("rebuilt", machine=m.item.id.split("/", 2)[-1], state=m.item.state, why=m.why)
    if made:
        _say("rebuilt", store=str(made.store), wrong=made.wrong, notes=made.notes)
    if running.stranger:
        _say("new_data_folder", note=running.stranger)
    _say("started", runtime=running.note, epoch=running.world.epoch)
    try:
        return _drive(running, path, once, until_idle, dry_run, as_json)
    finally:
        running.close()


def _start(loaded: Any, dry_run: bool, take_over: bool) -> tuple[Any, Any]:
    """A store that is lost is made anew first, as `harness rebuild` does, and what was found is told; one that is
    damaged is for a person to look at."""
    from harness.adapters.store.errors import StoreMissing
    from harness.compose import director

    try:
        return director.start(loaded, dry=dry_run, report=_report, take_over=take_over), None
    except StoreMissing:
        if dry_run:
            raise
    from harness.compose.rebuild import rebuild

    made = rebuild(loaded)
    return director.start(loaded, report=_report), made


def _report(machine: str, item: Any, text: str) -> None:
    more = {"text": text} if text else {}
    _say("state", machine=machine.split("/", 2)[-1], state=item.state, **more)


def _say(event: str, **more: Any) -> None:
    import structlog

    structlog.get_logger("harness").info(event, **more)


def _drive(running: Any, path: Path, once: bool, until_idle: bool, dry_run: bool, as_json: bool) -> int:
    from harness.compose import ends
    from harness.compose.service import Notify
    from harness.tick import Fenced

    def told(number: int, _: object) -> None:
        if running.signals:
            os._exit(128 + number)
        running.signals.append(signal.Signals(number).name)
        running.loop.wake.set()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    hangups: list[int] = []

    def hangup(number: int, _: object) -> None:
        hangups.append(number)
        running.loop.wake.set()

    signal.signal(signal.SIGHUP, hangup)
    notify = Notify(os.environ)
    after, standstill = running.loop.after, ends.Standstill()

    def each(loop: Any) -> None:
        after(loop)
        reason = standstill.news(running)
        if reason:
            _say("waits", reason=reason)
        if hangups:
            hangups.clear()
            for line in running.reload(path):
                print(f"harness director: {line}", file=sys.stderr, flush=True)
        notify.alive(ready=loop.items[running.machine].state != "BOOT")

    running.loop.after = each
    try:
        running.loop.run(lambda loop: ends.ended(running, once=once, until_idle=until_idle))
    except Fenced as e:
        print(f"harness director: {e}", file=sys.stderr)
        return 4
    notify.stopping()
    _say("ended", why=running.signals[0] if running.signals else "")
    if dry_run:
        emit({"would": running.world.forge.would}, True)
    elif as_json:
        emit(ends.summary(running), True)
    return 0
