"""What `harness fsm` shows is the specification's table, whole and nothing else."""

from __future__ import annotations

import re

import pytest
from tables import TABLES, relation


@pytest.mark.parametrize("name", TABLES)
def test_the_json_is_the_specifications_table(name, harness):
    rows, start, final = TABLES[name]
    states, moves = relation(rows, final)
    shown = harness("fsm", "show", name, "--format", "json")
    assert shown.code == 0
    d = shown.json
    assert set(d) == {"name", "start", "final", "states", "moves"}
    assert (d["name"], d["start"], set(d["final"]), set(d["states"])) == (name, start, final, states)
    told = [(m["from"], m["event"], m["to"]) for m in d["moves"]]
    assert len(told) == len(set(told))
    assert set(told) == moves


@pytest.mark.parametrize("name", TABLES)
def test_the_table_for_people_says_any_once(name, harness):
    rows = {tuple(line.split()) for line in TABLES[name][0].strip().splitlines()}
    shown = harness("fsm", "show", name).out
    told = {tuple(line.replace(" (final)", "").split()) for line in shown.splitlines()[2:]}
    assert told == rows


@pytest.mark.parametrize("name", TABLES)
def test_the_diagram_draws_every_row(name, harness):
    rows, start, final = TABLES[name]
    drawn = harness("fsm", "show", name, "--format", "mermaid").out
    assert drawn.startswith("stateDiagram-v2\n")
    edges = set(re.findall(r"^    (\S+) --> (\S+): (\S+)$", drawn, re.MULTILINE))
    wanted = {tuple(line.split()) for line in rows.strip().splitlines()}
    assert {("any" if a == "any_state" else a, e, to) for a, to, e in edges} == wanted
    assert f"[*] --> {start}" in drawn
    assert all(f"{f} --> [*]" in drawn for f in final)


def test_the_list_has_every_machine(harness):
    assert {m["name"] for m in harness("fsm", "list", "--json").json} >= set(TABLES)
    assert "director" in harness("fsm", "list").out


def test_a_machine_that_is_none(harness):
    shown = harness("fsm", "show", "directer")
    assert (shown.code, shown.out) == (2, "")
    assert "no machine 'directer'" in shown.err and "director" in shown.err
    assert len(shown.err.strip().splitlines()) == 1
