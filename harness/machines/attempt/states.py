"""The attempt's states, events and data. An attempt has one worker, in one or more incarnations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from harness.core.item import Item
from harness.core.journal import Record
from harness.domain import container_name


class S(StrEnum):
    PREPARING = "PREPARING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HARVESTING = "HARVESTING"
    CLEANING = "CLEANING"
    CLOSED = "CLOSED"


class E(StrEnum):
    PREPARED = "prepared"
    STARTED = "started"
    UPGRADE = "upgrade"
    INFRA_LOST = "infra_lost"
    EXITED = "exited"
    STALLED = "stalled"
    TIMED_OUT = "timed_out"
    HARVESTED = "harvested"
    CLEAN = "clean"
    CLEANUP_DENIED = "cleanup_denied"
    FAILED = "failed"
    STOP = "stop"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt's own data.

    `code` is `12.1`: issue and number. `images` are those of the incarnations so far. `answers` holds the
    reply to each request of the worker. `outcome` is done, question, stopped or failed; `failure` its class.
    `witnessed` is the last hash seen of the worker's journal, `counters` what the worker says it used up.
    `tried` says that a worker may have been started; only with an `engine` it surely was.
    """

    code: str = ""
    ticket: str = ""
    issue: int = 0
    title: str = ""
    purpose: str = "issue"
    branch: str = ""
    base: str = ""
    base_sha: str = ""
    start_sha: str = ""
    image: str = ""
    image_now: str = ""
    prepare: str = ""
    prepare_sha: str = ""
    commands: tuple[str, ...] = ()
    brief: Mapping[str, Any] = field(default_factory=dict)
    pull_title: str = ""
    pull_body: str = ""
    incarnation: int = 1
    infra: int = 0
    engine: str = ""
    tried: bool = False
    answers: Mapping[str, Any] = field(default_factory=dict)
    asking: str = ""
    asking_kind: str = ""
    head: str = ""
    pull: int = 0
    question: str = ""
    outcome: str = ""
    failure: str = ""
    detail: str = ""
    exit: int | None = None
    warning: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    witnessed: str = ""
    witnessed_seq: int = 0
    asked_stop: str = ""
    audit: str = ""
    files: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    control: int = 0
    review: bool = False


def worker_name(item: Item[Attempt], repo: str, instance: str) -> str:
    return container_name(repo, item.data.code, f"i{item.data.incarnation}", instance)


def harvest_name(item: Item[Attempt], repo: str, instance: str) -> str:
    return container_name(repo, item.data.code, "harvest", instance)


def job_names(item: Item[Attempt], repo: str, instance: str) -> tuple[str, ...]:
    """Every name that this attempt can have started."""
    workers = [
        container_name(repo, item.data.code, f"i{n}", instance) for n in range(1, item.data.incarnation + 1)
    ]
    return (*workers, harvest_name(item, repo, instance))


def rest(data: Attempt) -> Attempt:
    """Without what only the worker needed: the brief repeats the issue's text."""
    return replace(data, commands=(), brief={}, pull_body="", answers={})


def fold(data: Attempt, record: Record) -> Attempt:
    body = record.body
    if record.kind == "transition":
        data = replace(data, **body.get("note", {}))
        if body["to"] == S.STARTING:
            data = replace(data, tried=True)
        if body["event"] in (E.UPGRADE, E.INFRA_LOST):
            data = replace(data, incarnation=data.incarnation + 1)
        return data
    if body.get("status") != "done":
        return data
    effect, value = body.get("effect"), body.get("value") or {}
    if effect == "StartWorker":
        return replace(data, engine=value.get("engine", ""), image_now=value.get("image", data.image))
    if effect == "Publish":
        answer = {"ok": True, "sha": value["sha"]}
        files = tuple(value.get("files", ()))
        return replace(
            data,
            head=value["sha"],
            files=files,
            flags=tuple(value.get("flags", ())),
            review=bool(value.get("review")),
            answers={**data.answers, data.asking: answer},
            asking="",
        )
    if effect == "OpenPull":
        answer = {"ok": True, "pull": value["number"]}
        return replace(data, pull=value["number"], answers={**data.answers, data.asking: answer}, asking="")
    if effect == "SealBundle":
        return replace(data, audit=value["audit"])
    return data
