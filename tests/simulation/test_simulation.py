"""The lite mode of `make simulate`: some of its seeds, exact replay, and what the harness itself promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.simulation import __main__
from tests.simulation.cluster import Cluster
from tests.simulation.injected import Injected
from tests.simulation.kept import KEPT
from tests.simulation.minimise import minimise
from tests.simulation.nominator import Nominator
from tests.simulation.options import Options, draw_options
from tests.simulation.profiles import PROFILES, draw
from tests.simulation.simulator import Failure, simulate
from tests.simulation.store import Api, Record, Store
from tests.simulation.world import World

from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.sets import Sets

SEEDS = 200
PLAIN_SEEDS = 60
"""Plain Python runs these, and beyond them those with real operators. Compiled code runs the others, twice as fast."""
PART = 5
STRUCK_SEEDS = 140
DISASTER_SEEDS = 500
"""Few seeds lose a majority for good, and not in each of them somebody accepts it."""
PLAIN = "MUSTER_TEST_COMPILED" not in os.environ
"""Real operators run in plain Python only: they come with doubles of parts of compiled modules."""
REPLAYED = 11 if PLAIN else 10
"""`CONSUMING`, and the first ten or nine: the tenth has real operators."""
CONSUMING = 53
"""It has consumers of the new protocol."""
QUIET_WITH_REMOVALS = {"flip_every_ms", "full_every_ms", "broken_every_ms", "errors_every_ms", "crash_in_effects"}
HASHES = """
import os
from tests.simulation.profiles import draw
from tests.simulation.simulator import simulate
print(*(simulate(draw(seed)).trace_hash for seed in (CONSUMING, *range(REPLAYED - 1))), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_seeds_are_clean(first: int) -> None:
    for seed in range(first, first + PART):
        options = draw(seed)
        runs_here = (options.operating or seed < PLAIN_SEEDS) if PLAIN else not options.operating
        if not runs_here:
            continue
        outcome = simulate(options)
        assert outcome.committed > 0
        assert outcome.answered > 0


@pytest.mark.parametrize("found", KEPT)
def test_run_that_found_a_defect_is_clean(found: str) -> None:
    simulate(KEPT[found])


def _hashes(**environment: str) -> list[str]:
    """Of the whole trace of some seeds, in another process: of all that was logged and of every random choice."""
    program = HASHES.replace("REPLAYED", str(REPLAYED)).replace("CONSUMING", str(CONSUMING))
    given = {name: value for name, value in (os.environ | environment).items() if value}
    run = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1].split()  # before that, what killed processes log when they are collected


@pytest.mark.timeout(600)
def test_equal_seeds_are_equal_runs_in_any_process() -> None:
    one, other = (_hashes(PYTHONHASHSEED=number) for number in ("1", "2"))
    assert one == other
    assert len(set(one)) == REPLAYED


@pytest.mark.skipif(PLAIN, reason="for the tests that run compiled")
def test_compiled_and_plain_python_give_equal_runs() -> None:
    assert _hashes() == _hashes(PYTHONPATH="")


def test_trace_has_all_that_happened_and_is_the_same_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = []
    for name in ("one", "other"):
        arguments = ["simulate", "--seed", "1", "--trace", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", arguments)
        assert __main__.main() == 0
        traces.append((tmp_path / name).read_bytes())
    assert traces[0] == traces[1]
    assert traces[0].splitlines()[-1].decode().endswith(simulate(draw(1)).trace_hash)
    assert traces[0].count(b" promises ") > 3


def test_drawn_options_are_of_every_profile() -> None:
    drawn = [vars(draw(seed)) for seed in range(120)]
    for name, profile in PROFILES.items():
        often = {key: value for key, value in profile.items() if key not in QUIET_WITH_REMOVALS}
        assert any(often.items() <= options.items() for options in drawn), name


@pytest.mark.interpreted
@pytest.mark.timeout(600)
def test_each_kind_of_fault_strikes_within_a_few_seeds() -> None:
    struck: Counter[Injected] = Counter()
    disasters = (seed for seed in range(STRUCK_SEEDS, DISASTER_SEEDS) if draw(seed).disaster)
    mixed_last = sorted(range(STRUCK_SEEDS), key=lambda seed: draw(seed).mixed > 0)  # they have few faults
    for seed in chain(mixed_last, disasters):
        struck += simulate(draw(seed)).injected
        missing = set(Injected) - set(struck)
        if not missing:
            return
    assert [kind.value for kind in missing] == []


def test_one_of_four_seeds_without_real_operators_has_producers_that_commit_and_abort() -> None:
    drawn = [options for options in map(draw, range(400)) if not options.operating]
    assert 1 / 5 < sum(options.coordinators > 0 for options in drawn) / len(drawn) < 1 / 3
    outcomes = [simulate(options) for options in [each for each in drawn if each.coordinators][:3]]
    assert sum(each.transactions_committed for each in outcomes) > 5
    assert sum(each.transactions_aborted for each in outcomes) > 5


def test_drawn_options_cover_one_three_and_five_replicas_and_more_than_four_epochs() -> None:
    drawn = [draw(seed) for seed in range(30)]
    assert {options.replicas for options in drawn} == {1, 3, 5}
    assert max(simulate(options).highest_epoch for options in drawn[:8]) >= 4


def test_without_faults_and_rogues_hardly_anybody_but_the_first_leader_leads() -> None:
    off: dict[str, Any] = {
        one.name: 0 for one in fields(Options) if one.name.endswith("_every_ms") and one.name != "op_every_ms"
    }
    chances: dict[str, Any] = {"loss": 0.0, "duplicates": 0.0, "long_delay": 0.0, "crash_in_effects": 0.0}
    chances |= {"api_errors": 0.0, "operator_crash_in_steps": 0.0, "drift": 0.0}
    outcome = simulate(replace(Options(0, operators=1), **off, **chances))
    assert outcome.epochs <= 2
    assert outcome.answered > 500
    assert set(+outcome.injected) == {Injected.REORDERED}


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


def test_nominator_takes_over_a_set_that_somebody_else_made_final_in_the_recorded_epoch() -> None:
    """Its own election of that epoch was lost on the way; a rogue's was not, and named other replicas."""
    world = World(Options(0, spares=1, loss=0.0, duplicates=0.0, long_delay=0.0, api_errors=0.0, crash_in_effects=0.0))
    cluster = Cluster(world)
    world.run_until(200)  # the logs are open
    partition = cluster.partitions[0]
    pod, first = cluster.first_sets(partition)
    leader, spare = partition.replicas[pod], partition.replicas["pod-3"].storage.log_id
    leader.elect(ElectionCall(0, first, bootstrap=True), lambda answer: None)
    world.run_until(1_000)
    changed = Sets((*first.replicas[:2], spare), first.replicas)
    leader.elect(ElectionCall(1, changed, force=True), lambda answer: None)
    store = Store(Api(world), Record(1, pod, first, opened=True))
    Nominator("op", partition, store)._again_at = world.now_ms + 500  # it looks first
    world.run_until(4_000)
    assert store.record.sets == Sets(changed.replicas)
    assert store.record.epoch == 1
