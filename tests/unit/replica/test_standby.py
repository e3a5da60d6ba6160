"""A follower's state: what it is made of, who goes on with a replay, and what a leader that steps down keeps of it."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest
from tests.support.replicas import ReplicaPods
from tests.unit.replica.test_loading import Counting, commits, log_of

from muster_coordinator.log.segments.cleaned import CleanedTo
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.replica import standby as module
from muster_coordinator.replica.load_turns import LoadTurns
from muster_coordinator.replica.loading import SLICE_RECORDS
from muster_coordinator.replica.standby import NOTHING, LogCleanedError, Standby
from muster_coordinator.replication.messages import Ack, Batch
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.tuning.pacing import Urgency

LIMIT_S = 20.0


class LogOnly:
    """As much of a replica as a standby needs."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.partition = 0
        self.directory = log.directory

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    def open_checkpoint(self, version: int | None) -> None:
        return None


class Turns(LoadTurns):
    """`held` is not set: no load gets a slice."""

    def __init__(self) -> None:
        super().__init__(monotonic)
        self.held = asyncio.Event()
        self.held.set()
        self.asked: list[tuple[Urgency, int]] = []

    async def next_slice(self, urgency: Urgency, rest_bytes: int) -> None:
        self.asked.append((urgency, rest_bytes))
        await self.held.wait()


def batch(start: int, records: int) -> bytes:
    return encode_batch(commits(records), base_offset=start, leader_epoch=0, timestamp_ms=0)


def standby_of(log: PartitionLog, turns: LoadTurns, replayed: int = NOTHING) -> tuple[Standby, Counting]:
    state = Counting()
    replica: Any = LogOnly(log)
    return Standby(
        replica, ReplayedState(state), ShardMetrics(), turns, lambda error: pytest.fail(str(error)), replayed
    ), state


def arrive(standby: Standby, log: PartitionLog, records: int) -> None:
    start, data = log.end_offset, batch(log.end_offset, records)
    log.append(data, start, start + records, 0)
    standby.arrived(start, [Batch(start, start + records, 0, data)])


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.interpreted
async def test_what_arrived_and_is_kept_no_longer_is_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a replay the batches at hand are given up, for there are too many: none of them is skipped."""
    log, turns = log_of(batch(0, 1)), Turns()
    standby, state = standby_of(log, turns)
    standby.follow(1)
    await until(lambda: standby.replayed == 1)
    for _ in range(4):
        arrive(standby, log, SLICE_RECORDS)
    turns.held.clear()
    standby.follow(log.end_offset)
    await until(lambda: state.replayed > 1)
    monkeypatch.setattr(module, "ARRIVED_BYTES", 0)
    arrive(standby, log, 7)
    turns.held.set()
    standby.follow(log.end_offset)
    await until(lambda: standby.replayed == log.end_offset)
    assert state.replayed == log.end_offset


@pytest.mark.interpreted
async def test_what_arrives_is_replayed_from_memory_when_enough_has_gathered_or_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, turns = log_of(batch(0, 1)), Turns()
    standby, state = standby_of(log, turns)
    standby.follow(1)
    await until(lambda: standby.replayed == 1)
    monkeypatch.setattr(log, "read_batches", lambda start: pytest.fail("it was at hand"))
    arrive(standby, log, 1)
    seen = []
    for _ in range(module.GATHER_TICKS):
        standby.follow(2)
        seen.append(standby.replayed)
    assert seen == [*[1] * (module.GATHER_TICKS - 1), 2]
    arrive(standby, log, 450)
    assert module.GATHER_BYTES <= standby._arrived_bytes <= module.WARM_BYTES
    standby.follow(log.end_offset)
    assert state.replayed == log.end_offset == 452
    assert standby._task is None


@pytest.mark.interpreted
async def test_election_goes_on_with_the_replay_that_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_BYTES", 1 << 20)
    log, turns = log_of(*(batch(n * SLICE_RECORDS, SLICE_RECORDS) for n in range(5))), Turns()
    standby, state = standby_of(log, turns)
    turns.held.clear()
    standby.follow(log.end_offset)
    await until(lambda: len(turns.asked) == 1)
    assert turns.asked[0][0] is Urgency.BACKGROUND
    begun = state.replayed
    assert 0 < begun < log.end_offset
    assert standby.load_at_once(), "the rest is little"
    assert state.replayed == log.end_offset, "and nothing was replayed twice"
    assert standby.replayed == log.end_offset
    turns.held.set()
    await asyncio.sleep(0)
    assert state.replayed == log.end_offset


@pytest.mark.interpreted
async def test_long_replay_goes_on_in_turns_with_the_urgency_of_an_election(monkeypatch: pytest.MonkeyPatch) -> None:
    log, turns = log_of(*(batch(n * SLICE_RECORDS, SLICE_RECORDS) for n in range(5))), Turns()
    monkeypatch.setattr(module, "WARM_BYTES", 1)
    standby, state = standby_of(log, turns)
    turns.held.clear()
    standby.follow(log.end_offset)
    await until(lambda: len(turns.asked) == 1)
    assert not standby.load_at_once()
    turns.held.set()
    await asyncio.wait_for(standby.load(), LIMIT_S)
    assert state.replayed == log.end_offset
    assert [urgency for urgency, _ in turns.asked] == [Urgency.BACKGROUND, *[Urgency.ELECTION] * 4]
    rests = [rest for _, rest in turns.asked]
    assert rests == sorted(rests, reverse=True)
    assert rests[-1] < rests[0]


@pytest.mark.interpreted
async def test_state_fits_a_log_that_goes_on_and_none_that_was_written_anew() -> None:
    log, turns = log_of(batch(0, 3)), Turns()
    standby, _ = standby_of(log, turns)
    await standby.load()
    arrive(standby, log, 1)
    assert standby.fits
    shorter, _ = standby_of(log_of(batch(0, 3)), turns)
    await shorter.load()
    shorter._replica.log = log_of(batch(0, 2))  # type: ignore[misc]
    assert not shorter.fits
    another = log_of(batch(0, 1))
    another.append(encode_batch(commits(2), base_offset=1, leader_epoch=1, timestamp_ms=0), 1, 3, 1)
    shorter._replica.log = another  # type: ignore[misc]
    assert not shorter.fits


def clean(log: PartitionLog, horizon: int) -> None:
    """As the cleaner does when a segment took the place of another."""
    log.cleaned_to = CleanedTo(horizon, horizon)
    log.cleanings += 1


@pytest.mark.interpreted
@pytest.mark.parametrize(("horizon", "fits"), [(SLICE_RECORDS, True), (SLICE_RECORDS + 1, False)])
async def test_state_that_has_not_seen_all_tombstones_of_a_cleaned_log_is_dropped(horizon: int, fits: bool) -> None:
    """Else it would keep for ever what they deleted."""
    log, turns = log_of(batch(0, SLICE_RECORDS)), Turns()
    standby, _ = standby_of(log, turns)
    standby.follow(SLICE_RECORDS)
    await until(lambda: standby.replayed == SLICE_RECORDS)
    clean(log, horizon)
    assert standby.fits is fits


@pytest.mark.interpreted
async def test_replay_that_is_under_way_ends_when_tombstones_go_that_it_has_not_seen() -> None:
    log, turns = log_of(*(batch(start, SLICE_RECORDS) for start in range(0, 4 * SLICE_RECORDS, SLICE_RECORDS))), Turns()
    standby, state = standby_of(log, turns)
    turns.held.clear()
    standby.follow(log.end_offset)
    await until(lambda: state.replayed > 1)
    clean(log, log.end_offset)
    turns.held.set()
    await until(lambda: standby._task is None)
    assert not standby.fits
    assert standby.replayed == NOTHING
    with pytest.raises(LogCleanedError, match="cleaned when it was replayed to"):
        standby._check_cleaned(1)


async def test_leader_that_steps_down_keeps_the_state_whose_tail_its_successor_takes(pods: ReplicaPods) -> None:
    for offset in range(20):
        assert await pods[0].commit(offset) == 0
    await pods.caught_up()
    leader = pods[0].log_id()
    pods.network.drop = lambda message: isinstance(message, Ack) and message.to == leader
    committed = pods[0].end()
    tail = pods[0].ask_commit(20)
    await pods.until(lambda: pods[1].end() == pods[2].end() == pods[0].end() > committed)
    assert pods[0].shard().high_watermark == committed
    pods.network.drop = lambda message: False
    loaded = pods[0].up.metrics.records_loaded
    await pods.elect(1, force=True)
    await pods.caught_up()
    assert tail.done.done()
    await pods.elect(0, force=True)
    assert await pods[0].fetch() == 20
    assert pods[0].up.metrics.records_loaded <= loaded + 2, "leader-change records only"


async def test_leader_whose_tail_is_cut_forgets_it(pods: ReplicaPods) -> None:
    for offset in range(20):
        assert await pods[0].commit(offset) == 0
    await pods.caught_up()
    pods.network.isolate("pod-0")
    lost = pods[0].ask_commit(666, group="lost")
    await pods.until(lambda: pods[0].end() > pods[1].end())
    await pods.elect(1, force=True)
    assert await pods[1].commit(20) == 0
    pods.network.heal()
    await pods.caught_up()
    assert lost.done.done()
    await pods.elect(0, force=True)
    assert await pods[0].fetch() == 20
    assert await pods[0].fetch(group="lost") == -1
