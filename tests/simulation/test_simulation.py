"""The lite mode of `make simulate`: some seeds of the swarm, exact replay, and what the harness itself promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.simulation import __main__
from tests.simulation.cluster import Cluster
from tests.simulation.faults import CANARIES
from tests.simulation.injected import Injected
from tests.simulation.minimise import minimise
from tests.simulation.operator import Operator
from tests.simulation.options import Options, draw_options
from tests.simulation.replica import Replica
from tests.simulation.simulator import Failure, simulate
from tests.simulation.storage import DiskLog
from tests.simulation.store import Api, Record, Store
from tests.simulation.world import World

from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.rules import Rules
from muster_coordinator.replication.sets import Sets

SEEDS = 200
PART = 25
STRUCK_SEEDS = 100
REPLAYED = (3, 6, 9, 14)
ONLY_REAL_OPERATORS = (Injected.STORE_RESTORED, Injected.STATUS_LOST)
"""They strike in `operating/test_operating.py`."""
ONLY_REAL_PODS = {
    Injected.OLD_DUPLICATE,
    Injected.SLOW_LINK,
    Injected.CORRUPT,
    Injected.READ_ERROR,
    Injected.SHORT_WRITE,
    Injected.PROMISE_DAMAGED,
    Injected.CHECKPOINT_DAMAGED,
    Injected.CLEANED,
    Injected.COPIED,
    Injected.ARCHIVED,
    Injected.ARCHIVE_ERROR,
    Injected.REPLICA_REMOVED,
    Injected.FENCED,
}
"""They strike in `test_product.py`."""


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_seeds_of_the_swarm_are_clean(first: int) -> None:
    for seed in range(first, first + PART):
        simulate(draw_options(seed))


def test_equal_seeds_give_equal_runs_whatever_the_hash_seed() -> None:
    """The whole trace is the same: the hash is of all that was logged and of every random choice."""
    program = (
        "from tests.simulation.options import draw_options; from tests.simulation.simulator import simulate; "
        f"print([simulate(draw_options(seed)).trace_hash for seed in {REPLAYED}])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ | hash_seed
        )
        for hash_seed in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    ]
    assert runs[0].stdout == runs[1].stdout == f"{[simulate(draw_options(seed)).trace_hash for seed in REPLAYED]}\n"
    assert len(set(runs[0].stdout.split(","))) == len(REPLAYED)


@pytest.mark.skipif("MUSTER_TEST_COMPILED" not in os.environ, reason="for the tests that run compiled")
def test_compiled_and_plain_python_give_equal_runs() -> None:
    program = (
        "from tests.simulation.options import draw_options; from tests.simulation.simulator import simulate; "
        f"print([simulate(draw_options(seed)).trace_hash for seed in range({PART})])"
    )
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=plain)
    assert run.stdout == f"{[simulate(draw_options(seed)).trace_hash for seed in range(PART)]}\n"


def test_drawn_options_cover_one_three_and_five_replicas_and_more_than_four_epochs() -> None:
    drawn = [draw_options(seed) for seed in range(30)]
    assert {options.replicas for options in drawn} == {1, 3, 5}
    assert {(options.plan, options.files) for options in drawn} >= {(True, False), (False, True), (False, False)}
    assert max(simulate(options).highest_epoch for options in drawn[:10]) >= 4


def test_without_faults_and_rogues_hardly_anybody_but_the_first_leader_leads() -> None:
    off: dict[str, Any] = {
        one.name: 0 for one in fields(Options) if one.name.endswith("_every_ms") and one.name != "op_every_ms"
    }
    chances: dict[str, Any] = {"loss": 0.0, "duplicates": 0.0, "long_delay": 0.0, "crash_in_effects": 0.0}
    chances |= {"api_errors": 0.0, "operator_crash_in_steps": 0.0, "drift": 0.0}
    outcome = simulate(replace(Options(0, operators=1), **off, **chances))
    assert outcome.epochs <= 2
    assert outcome.answered > 500
    assert set(outcome.injected) == {Injected.REORDERED}


def test_each_kind_of_fault_strikes_within_a_few_seeds() -> None:
    struck: Counter[Injected] = Counter()
    for seed in range(STRUCK_SEEDS):
        struck += simulate(draw_options(seed)).injected
    elsewhere = {*ONLY_REAL_OPERATORS, *ONLY_REAL_PODS}
    assert [kind.value for kind in Injected if kind not in struck and kind not in elsewhere] == []


@pytest.mark.parametrize("name", CANARIES)
def test_canary_is_caught(name: str) -> None:
    """A host that breaks a promise of its own: if such a run is clean, the checkers check nothing."""
    with pytest.raises(Failure, match=CANARIES[name].reason):
        _run_canary(name)


def test_failure_names_its_options_and_ends_with_what_happened() -> None:
    name = next(iter(CANARIES))
    with pytest.raises(Failure) as caught:
        _run_canary(name)
    assert caught.value.options.seed < CANARIES[name].seeds
    assert caught.value.trace


def _run_canary(name: str) -> None:
    canary = CANARIES[name]
    for seed in range(canary.seeds):
        canary.run(canary.draw(seed))


def test_minimising_switches_off_what_the_failed_check_does_not_need() -> None:
    options = replace(draw_options(2), loss=0.05, crash_every_ms=700, groups=3)

    def run(options: Options) -> None:
        if options.loss == 0:
            raise Failure(options, "another defect", [], "another check")
        if options.groups > 1:
            raise Failure(options, "the defect", [], "this check")

    smallest = minimise(options, run)
    assert (smallest.loss, smallest.crash_every_ms, smallest.groups, smallest.seed) == (0.05, 0, 3, 2)


@pytest.mark.interpreted
def test_failing_seed_prints_itself_is_minimised_and_fails_again_in_the_same_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def main(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["simulate", "--fault", "no seal", *arguments])
        assert __main__.main() == 1
        return capsys.readouterr().out

    found = main("--seeds", "8")
    failed = re.search(r"seed (\d+) failed: (.*)", found)
    again = re.search(r'make simulate SEED=(\d+) WITH="(.*)"', found)
    assert failed is not None
    assert again is not None
    assert failed[1] == again[1]
    assert f"seed {failed[1]} failed: {failed[2]}" in main("--seed", failed[1])
    smallest = main("--seed", again[1], "--with", again[2])
    assert smallest.splitlines()[-5:] == found.splitlines()[-5:]
    assert "crash_every_ms=0" in smallest


def test_write_that_began_before_a_cleaning_does_not_take_the_horizon_of_the_disk_back() -> None:
    log = DiskLog()
    log.append(10, (), [(0, 0)], horizon=0)
    log.clean({}, horizon=8)
    log.append(12, (), [], horizon=0)
    assert log.horizon == 8
    log.cut(5)
    assert log.horizon == 5, "what is left lacks no more than that"


def test_one_way_partition_blocks_one_way() -> None:
    world = World(Options(0, loss=0.0, duplicates=0.0, long_delay=0.0))
    arrived: list[str] = []
    world.block("a", "b", 100)
    world.send("a", "b", lambda: arrived.append("there"))
    world.send("b", "a", lambda: arrived.append("back"))
    world.run_until(50)
    assert arrived == ["back"]


def test_slow_link_is_slow_in_one_direction_and_an_old_message_comes_again() -> None:
    world = World(Options(0, loss=0.0, duplicates=0.0, long_delay=0.0, old_duplicates=1.0))
    arrived: list[tuple[int, str]] = []
    world.slow["a", "b"] = 100, 300
    for text in ("first", "second"):
        world.send("a", "b", lambda text=text: arrived.append((world.now_ms, text)))  # type: ignore[misc]
    world.send("b", "a", lambda: arrived.append((world.now_ms, "back")))
    world.run_until(5_000)
    assert [text for _, text in arrived].count("first") == 2
    assert all(at_ms >= 300 for at_ms, text in arrived if text == "second")
    assert next(at_ms for at_ms, text in arrived if text == "back") < 300


def test_plain_operator_takes_over_a_set_that_somebody_else_made_final_in_the_recorded_epoch() -> None:
    """Its own election of that epoch was lost on the way; a rogue's was not, and named other replicas."""
    world = World(Options(0, spares=1, loss=0.0, duplicates=0.0, long_delay=0.0, api_errors=0.0, crash_in_effects=0.0))
    cluster = Cluster(world, Rules(), Replica)
    partition = cluster.partitions[0]
    pod, first = cluster.first_sets(partition)
    leader, spare = partition.replicas[pod], partition.replicas["pod-3"].storage.log_id
    leader.elect(ElectionCall(0, first, bootstrap=True), lambda answer: None)
    world.run_until(1_000)
    changed = Sets((*first.replicas[:2], spare), first.replicas)
    leader.elect(ElectionCall(1, changed, force=True), lambda answer: None)
    store = Store(Api(world), Record(1, pod, first, opened=True))
    Operator("op", partition, store)._again_at = world.now_ms + 500  # it looks first
    world.run_until(4_000)
    assert store.record.sets == Sets(changed.replicas)
    assert store.record.epoch == 1
