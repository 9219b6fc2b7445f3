"""What model calls cost: caps, days, restarts, and what each shape's usage comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_world import Place

from harness.gateway.ledger import ATTEMPTS_KEPT, DAYS_KEPT, Capped, Cost, Ledger, file_load, file_save
from harness.gateway.meter import Meter, Usage, cost_of, estimate, guess, price_of, usage_of
from harness.gateway.settings import GatewayError, ModelSettings, Price

DAY_S = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Kept:
    def __init__(self) -> None:
        self.state: Any = None

    def load(self) -> Any:
        return None if self.state is None else json.loads(self.state)

    def save(self, state: Any) -> None:
        self.state = json.dumps(state)


def ledger(clock: Clock, kept: Kept, **caps: Any) -> Ledger:
    made = Ledger(ModelSettings("http://x", **caps), clock, kept.load, kept.save)
    made.open()
    return made


def test_a_day_of_runs_is_capped_across_a_restart_and_ends_with_the_day() -> None:
    clock, kept = Clock(), Kept()
    first = ledger(clock, kept, per_day_usd=1.0)
    for usd in (0.70, 0.25):
        key = first.reserve("12.1", Cost(usd=usd))
        assert isinstance(key, str)
        first.settle(key, Cost(usd=usd))
    first.persist()
    second = ledger(clock, kept, per_day_usd=1.0)
    assert second.today()["usd"] == pytest.approx(0.95)
    refused = second.reserve("13.1", Cost(usd=0.2))
    assert isinstance(refused, Capped) and refused.scope == "day" and "$0.95 of $1.00" in refused.why
    assert second.capped("13.1") == refused.why and second.capped("12.1") == ""
    clock.at += DAY_S
    assert second.capped("13.1") == "" and isinstance(second.reserve("13.1", Cost(usd=0.2)), str)
    assert second.spent("12.1")["usd"] == pytest.approx(0.95), "an attempt's own sum has no day"


def test_what_is_reserved_counts_until_it_is_settled() -> None:
    made = ledger(Clock(), Kept(), per_attempt_tokens=100)
    first = made.reserve("a", Cost(10, 80))
    assert isinstance(first, str) and made.spent("a")["tokens_out"] == 80
    assert isinstance(made.reserve("a", Cost(10, 10)), Capped)
    assert isinstance(made.reserve("b", Cost(10, 10)), str)
    made.settle(first, Cost(10, 5))
    assert made.capped("a") and isinstance(made.reserve("a", Cost(10, 10)), str) and made.capped("a") == ""


def test_a_call_that_was_refused_costs_nothing() -> None:
    made = ledger(Clock(), Kept())
    key = made.reserve("a", Cost(10, 80, 1.0))
    assert isinstance(key, str)
    made.settle(key, None)
    assert made.spent("a") == {"tokens_in": 0, "tokens_out": 0, "usd": 0.0, "requests": 0}


def test_a_reservation_may_grow_within_the_caps() -> None:
    made = ledger(Clock(), Kept(), per_attempt_tokens=100)
    key = made.reserve("a", Cost(10, 40))
    assert isinstance(key, str)
    assert made.extend(key, Cost(0, 50)) and not made.extend(key, Cost(0, 1))
    assert made.spent("a")["tokens_out"] == 90 and "tokens per attempt" in made.capped("a")


def test_a_dead_directors_reservations_are_settled_in_full() -> None:
    clock, kept = Clock(), Kept()
    first = ledger(clock, kept)
    first.reserve("a", Cost(10, 80, 1.5))
    first.persist()
    second = ledger(clock, kept)
    assert second.spent("a") == {"tokens_in": 10, "tokens_out": 80, "usd": 1.5, "requests": 1}
    second.persist()
    assert ledger(clock, kept).spent("a")["requests"] == 1


def test_the_state_is_bounded() -> None:
    clock, kept = Clock(), Kept()
    made = ledger(clock, kept)
    for i in range(ATTEMPTS_KEPT + 10):
        clock.at += DAY_S / 10
        key = made.reserve(f"{i}.1", Cost(1, 1, 0.1))
        assert isinstance(key, str)
        made.settle(key, Cost(1, 1, 0.1))
    state = made.state()
    assert len(state["attempts"]) == ATTEMPTS_KEPT and len(state["days"]) == DAYS_KEPT
    assert f"{ATTEMPTS_KEPT + 9}.1" in state["attempts"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"v":9}', '{"v":1,"attempts":[],"days":{},"open":[]}', "{"]
)
def test_a_ledger_that_cannot_be_read_stops_the_start(place: Place, text: str) -> None:
    place.data.mkdir(parents=True)
    (place.data / "model-ledger.json").write_text(text)
    with pytest.raises(GatewayError, match="the model's ledger cannot be read"):
        place.gateway()


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "data" / "l.json"
    assert file_load(path) is None
    file_save(path, {"v": 1})
    file_save(path, {"v": 2})
    assert file_load(path) == {"v": 2} and [x.name for x in path.parent.iterdir()] == ["l.json"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("settings", [{"base_url": "ftp://x"}, {"base_url": "http://x", "auth": "basic"}])
def test_settings_that_cannot_work_stop_the_start(place: Place, settings: dict[str, str]) -> None:
    with pytest.raises(GatewayError, match="the model's"):
        place.gateway(model=ModelSettings(**settings))  # type: ignore[arg-type]


# ---------------------------------------------------------------- the meter

SETTINGS = ModelSettings(
    "http://x",
    prices={
        "claude-x": Price(3.0, 15.0, cache_read_usd=0.3, cache_write_usd=3.75),
        "claude": Price(1.0, 2.0),
        "gpt": Price(2.0, 8.0),
    },
    default_cost_usd=0.05,
    default_output_tokens=1000,
)


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        ({"usage": {"input_tokens": 5, "output_tokens": 2}}, Usage(5, 0, 0, 2)),
        (
            {"usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 9}},
            Usage(5, 7, 9, 0),
        ),
        ({"message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}, Usage(5, 0, 0, 1)),
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 3}}, Usage(9, 0, 0, 3)),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}}, Usage(5, 4, 0, 0)),
        (
            {"response": {"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}}},
            Usage(5, 4, 0, 0),
        ),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": "x"}}, Usage(0, 0, 0, 0)),
        ({"usage": {"prompt_tokens": 1 << 50, "prompt_tokens_details": None}}, Usage(0, 0, 0, 0)),
        ({"usage": None}, None),
        ({"usage": []}, None),
        ([], None),
        ("usage", None),
    ],
)
def test_usage_is_read_from_each_shape(reply: Any, usage: Usage | None) -> None:
    assert usage_of(reply) == usage


def test_a_stream_is_read_however_it_is_cut() -> None:
    events = [
        b'event: message_start\ndata: {"message":{"usage":{"input_tokens":50,"output_tokens":1}}}\n\n',
        b'data: {"delta":{"text":"usage"}}\r\n\r\n',
        b'data: {"usage":{"output_tokens":12}}\n\n',
        b"data: [DONE]\n\n: comment\n\n",
    ]
    whole = b"".join(events)
    for step in (1, 7, 64, len(whole)):
        meter = Meter()
        for i in range(0, len(whole), step):
            meter.feed(whole[i : i + step])
        assert meter.usage == Usage(50, 0, 0, 12) and meter.events == 4


def test_of_attempts_that_ran_into_a_cap_the_newest_are_known() -> None:
    made = ledger(Clock(), Kept(), per_attempt_usd=1.0)
    for n in range(ATTEMPTS_KEPT + 10):
        assert isinstance(made.reserve(f"{n}.1", Cost(usd=2.0)), Capped)
    assert made.capped("9.1") == "" and "$1.00" in made.capped("10.1")
    assert "$1.00" in made.capped(f"{ATTEMPTS_KEPT + 9}.1")


def test_a_line_without_an_end_is_let_go() -> None:
    meter = Meter()
    meter.feed(b"data: " + b"x" * (5 << 20))
    meter.feed(b"x" * 10 + b"\ndata: " + b'{"usage":{"prompt_tokens":3}}\n')
    assert meter.usage == Usage(3, 0, 0, 0)


def test_the_longest_name_of_a_price_wins() -> None:
    assert price_of(SETTINGS, "claude-x") == price_of(SETTINGS, "claude-x-20261101")
    assert price_of(SETTINGS, "claude-y") == SETTINGS.prices["claude"]
    assert price_of(SETTINGS, "llama") is None and price_of(SETTINGS, "") is None


def test_an_estimate_is_not_less_than_the_cost_it_stands_for() -> None:
    for model in ("claude-x", "gpt-5", "llama"):
        request = {"max_tokens": 500}
        before = estimate(SETTINGS, model, request, 3000)
        worst = cost_of(SETTINGS, model, Usage(0, 0, 1000, 500))
        assert before.usd >= worst.usd and before.tokens >= worst.tokens
    assert estimate(SETTINGS, "gpt", {}, 0).tokens_out == 1000
    assert estimate(SETTINGS, "gpt", {"max_completion_tokens": 7, "n": 3}, 0).tokens_out == 21
    assert estimate(SETTINGS, "gpt", {"max_tokens": True, "max_output_tokens": "9"}, 0).tokens_out == 1000


def test_a_guess_is_never_nothing() -> None:
    assert guess(SETTINGS, "llama", 0, 0, None).usd == 0.05
    assert guess(SETTINGS, "claude-x", 300, 10, None).usd == 0.05
    dear = guess(SETTINGS, "claude-x", 300_000, 10_000, Usage(100_000, 0, 0, 1))
    assert dear.usd == pytest.approx(0.45) and (dear.tokens_in, dear.tokens_out) == (100_000, 10_000)
