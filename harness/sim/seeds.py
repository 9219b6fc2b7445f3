"""Seeds: one seed is one night, drawn, played and checked; many seeds are many processes.

The one rule: a seed with the same options is the same night, to the byte, on any machine.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import random
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.policy import Policy
from harness.sim.clock import START
from harness.sim.invariants import SETTLE_S, Checker, Violation
from harness.sim.night import REPO, Night
from harness.sim.people import ADA, People
from harness.sim.weather import CLASSES, Weather, mix

STEPS_LIMIT = 6000
THOROUGH_EVERY = 4  # verifying and replaying all journals costs as much as a fifth of the night


@dataclass(frozen=True, slots=True)
class Options:
    """`issues` is the most that a night has: how many is drawn, fewer more often."""

    issues: int = 3
    workers: int = 2
    faults: tuple[str, ...] = tuple(CLASSES)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one seed came to. `digest` is that of its transcript."""

    seed: int
    violations: tuple[Violation, ...]
    ticks: int
    digest: str
    transcript: tuple[str, ...] = field(default=(), repr=False)
    classes: tuple[str, ...] = ()
    virtual_s: float = 0.0


def play_of(rng: random.Random, number: int, faulty: bool) -> list[Mapping[str, Any]]:
    """What the agent does in its rounds on one issue. Good parts say so: the checker holds the harness to them."""
    good: Mapping[str, Any] = {
        "write": {f"file-{number}": f"done {number}"},
        "ok": True,
        "takes_s": rng.choice((5.0, 30.0, 90.0)),
    }
    if not faulty or rng.random() < 0.4:
        return [good]
    fixed = {k: v for k, v in good.items() if k != "ok"}
    bad: dict[str, list[Mapping[str, Any]]] = {
        "red": [{"write": {f"file-{number}": "BUG"}}],
        "fails": [{"status": "error", "exit": 1}],
        "hangs": [{"takes_s": None}],
        "nothing": [{}],
        "loops": [{"status": "looped"}],
        "asks": [{"question": "Which of the two?"}],
        "limited": [{"status": "rate_limited"}],
        "overloaded": [{"status": "overloaded"}, {"status": "overloaded"}],
        "quota": [{"status": "quota"}],
        "cut off": [{"status": "connection"}],
        "clashes": [{"write": {"shared": f"by {number}"}}],
    }
    first = bad[rng.choice(sorted(bad))]
    how = rng.random()
    if how < 0.5:
        return [*first, fixed]
    if how < 0.7:
        return [*first, *bad[rng.choice(sorted(bad))], fixed]
    return list(first)


def policy_of(rng: random.Random, options: Options) -> Policy:
    merge = "person" if rng.random() < 0.15 else "auto"
    review = "issue" if rng.random() < 0.15 else "none"
    return Policy(
        repo=REPO, instance="night", commands=("test",), image="img", merge=merge, required_review=review,
        prepare=("prepare",) if rng.random() < 0.15 else (),
        max_workers=rng.choice((1, options.workers, options.workers)), interval_s=20.0,
        min_free_bytes=0, rework_rounds=2, idle_s=300.0, worker_wall_s=1500.0, answer_s=1500.0, review_s=3600.0,
        cutoff_s=7200.0, validate_s=600.0, prepare_s=600.0,
    )  # fmt: skip


def play(seed: int, options: Options, story: bool = False) -> Verdict:
    """One night from its first to its last step."""
    rng = random.Random(seed)
    classes = mix(rng, options.faults)
    issues = rng.choices(range(1, options.issues + 1), [n**-1.5 for n in range(1, options.issues + 1)])[0]
    plays = {n: play_of(rng, n, "agents" in classes) for n in range(1, issues + 1)}
    weather = Weather(random.Random(rng.random()), classes)
    night = Night(
        policy_of(rng, options), plays, delay=weather.delay if "slow" in classes else _no_delay,
        late_work=weather.late_work,
        lag=weather.lag, full=weather.full, boundary=weather.boundary, down_s=weather.down_s,
        rest_s=30.0, longest_rest_s=600.0, thorough=seed % THOROUGH_EVERY == 0,
    )  # fmt: skip
    try:
        return _watch(seed, night, weather, rng, options, story)
    finally:
        night.close()


def _no_delay(port: str) -> float:
    return 0.0


def _watch(
    seed: int, night: Night, weather: Weather, rng: random.Random, options: Options, story: bool
) -> Verdict:
    weather.night = night
    night.switch.ask = weather.ask
    weather.skew()
    for n in night.play:
        night.hub.person_opens(ADA, f"Issue {n}", "Please do it.", ("harness",))
    weather.draw(night)
    people = People(night, weather, random.Random(rng.random()), answers=rng.random() < 0.7)
    people.draw()
    weather.seal()
    night.due = lambda: [*weather.due(), *people.due()]
    night.crew.boundary = weather.worker_boundary
    checker = Checker(night, weather, people, thorough=night.thorough)

    def before() -> None:
        weather.turn()
        people.turn()

    night.before_step, night.after_step = before, checker.step
    in_time = _run(night, weather, checker)
    checker.end(in_time)
    lines = transcript(night) if story or checker.found else ()
    ticks = night.ticks + night.turns.ticks + sum(x.turns.ticks for x in night.crew.living.values())
    return Verdict(
        seed,
        tuple(checker.found),
        ticks,
        digest_of(night),
        lines,
        tuple(sorted(weather.classes)),
        night.clock.at - START,
    )


def _run(night: Night, weather: Weather, checker: Checker) -> bool:
    """Until everything rests, or the bound is passed; answers whether it was in time."""
    while night.clock.at < weather.quiet_at + SETTLE_S and night.steps < STEPS_LIMIT:
        try:
            night.step()
        except AssertionError as e:
            checker.say("it comes to rest", str(e)[:500])
            return False
        except Exception as e:
            checker.say("nothing raises", "".join(traceback.format_exception(e, limit=-5))[-1500:])
            return False
        if checker.settled():
            return True
    return False


def digest_of(night: Night) -> str:
    """One hash over all journals and the story: two runs that differ anywhere differ here."""
    sums = hashlib.sha256()
    for disk in (night.disk, *(d for _, d in sorted(night.crew.disks.items()))):
        for machine in sorted(disk.records):
            sums.update(f"{machine} {disk.records[machine][-1].hash}\n".encode())
            for r in disk.records[machine]:
                sums.update(f"{r.at:.6f} {_line(r.kind, r.body)}\n".encode())
    for at, what in night.story:
        sums.update(f"{at:.6f} {what}\n".encode())
    return sums.hexdigest()


def transcript(night: Night) -> tuple[str, ...]:
    """The night in the order in which it happened: what went wrong, what was decided, what was done."""
    lines: list[tuple[float, int, str]] = [(at - START, 0, f"          {what}") for at, what in night.story]
    number = 0
    for disk in (night.disk, *night.crew.disks.values()):
        for machine, records in disk.records.items():
            name = machine.removeprefix(f"{REPO}/")
            for r in records:
                number += 1
                lines.append((r.at - START, number, f"{name:<16}{_line(r.kind, r.body)}"))
    return tuple(f"{at:10.3f} {text}" for at, _, text in sorted(lines))


def _line(kind: str, body: Mapping[str, Any]) -> str:
    if kind == "snapshot":
        return f"  = {body['item']['state']}"
    if kind == "outcome":
        detail = str(body.get("detail", "")).splitlines()
        what = f"  o {body['effect']} {body['status']} {body.get('failure', '')}"
        return f"{what} {detail[0][:160] if detail else ''}".rstrip()
    begun = ", ".join(i["$"] for i in body["intents"])
    move = f"{body['from']} --{body['event']}--> {body['to']}" if body["event"] else f"{body['to']}"
    return f"→ {move}  {body['reason'][:160]}" + (f"  [{begun}]" if begun else "")


# ---------------------------------------------------------------- many


def _settle() -> None:
    """A night leaves few cycles behind: what stays for good is not looked through again and again."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _one(job: tuple[int, Options]) -> Verdict:
    return play(*job)


def run(seeds: Sequence[int], options: Options, processes: int = 0) -> Iterator[Verdict]:
    """Verdicts in the order of the seeds. `processes` 0 means one per processor."""
    jobs = [(s, options) for s in seeds]
    wanted = min(processes or multiprocessing.cpu_count(), max(1, len(jobs) // 4))
    if wanted <= 1:
        yield from map(_one, jobs)
        return
    with multiprocessing.get_context("fork").Pool(wanted, _settle) as pool:
        yield from pool.imap(_one, jobs, chunksize=4)


def timed(seeds: Sequence[int], options: Options, processes: int = 0) -> tuple[list[Verdict], float]:
    began = time.monotonic()
    found = list(run(seeds, options, processes))
    return found, time.monotonic() - began
