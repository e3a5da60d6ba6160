"""Loading: in slices, the smallest log first, and a load that fails says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import pytest
import pytest_asyncio
from crc32c import crc32c
from tests.support.replicas import AnyTopic
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.history import History
from muster_coordinator.log.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.group_metadata import (
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import (
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from muster_coordinator.replica import loading
from muster_coordinator.replica.loading import SHORT_BYTES, SLICE_RECORDS, SLICE_S, STANDBY_RESTS, LoadTurns, replay_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.states import FailureReason, ShardState


def commits(count: int) -> list[tuple[bytes, bytes | None]]:
    value = encode_offset_commit_value(OffsetCommitValue(1, -1, "", 0))
    return [(encode_offset_commit_key("g", "t", partition), value) for partition in range(count)]


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[PodUnderTest]:
    pod = PodUnderTest()
    await pod.manager.start()
    yield pod
    await pod.manager.stop()


def append(pod: PodUnderTest, batch_records: list[tuple[bytes, bytes | None]], *, crc_only: bool = False) -> None:
    """Put one batch into partition 0's segment, past the pod, which is stopped; ``crc_only``: its records are noise
    under a correct CRC."""
    directory = partition_directory(DATA, 0)
    log = PartitionLog.open(pod.disk, directory, 0, LogSettings(), History(boot_id=""))
    batch = encode_batch(batch_records, base_offset=log.end_offset, leader_epoch=1, timestamp_ms=0)
    if crc_only:
        batch = broken_records(batch)
    log.append(batch, log.end_offset, log.end_offset + len(batch_records), 1)
    log.journaled_end = log.end_offset
    log.sync()
    log.close()


def broken_records(batch: bytes) -> bytes:
    checked = batch[21:61] + b"\x7f" + batch[62:]
    return batch[:17] + crc32c(checked).to_bytes(4, "big") + checked


async def fails_to_load(pod: PodUnderTest, batch_records: list[tuple[bytes, bytes | None]], **how: bool) -> str:
    """Why partition 0 FAILED with that batch in its log."""
    await pod.lead(1, bootstrap=True)
    await pod.manager.stop()
    append(pod, batch_records, **how)
    pod.manager = pod._new_manager()
    await pod.manager.start()
    await pod.lead(2)
    await pod.until(lambda: pod.manager.shards[0].state is not ShardState.LOADING)
    shard = pod.manager.shards[0]
    assert (shard.state, shard.reason) == (ShardState.FAILED, FailureReason.LOAD_FAILED)
    assert pod.manager.metrics.load_failures == 1
    return shard.message


async def test_record_that_does_not_parse_fails_the_load_and_says_so(pod: PodUnderTest) -> None:
    message = await fails_to_load(pod, [(b"\x00\x01\x7f", b"")])
    assert message.startswith("RecordDecodeError")


async def test_batch_whose_records_do_not_parse_fails_the_load_and_says_so(pod: PodUnderTest) -> None:
    message = await fails_to_load(pod, commits(3), crc_only=True)
    assert message.startswith("CorruptBatchError")


def log_of(*batches: bytes) -> PartitionLog:
    pod_disk = PodUnderTest().disk
    directory = DATA / "__consumer_offsets-0"
    PartitionLog.create(pod_disk, directory)
    log = PartitionLog.open(pod_disk, directory, 0, LogSettings(), History(boot_id=""))
    for batch in batches:
        read = read_batch(batch)
        log.append(batch, read.base_offset, read.end_offset, 0)
    return log


def slices(log: PartitionLog, clock: Callable[[], float] = lambda: 0.0) -> list[int]:
    """Records replayed so far, after each slice but the last."""
    state = Counting()
    return [state.replayed for _ in replay_log(log, state, ShardMetrics(), now_s=clock)]


class Counting(GroupCoordinator):
    def __init__(self) -> None:
        super().__init__(GroupConfig(), AnyTopic(), lambda: "suffix")
        self.replayed = 0

    def replay(self, *arguments: Any) -> None:
        self.replayed += 1
        super().replay(*arguments)


@pytest.mark.interpreted
def test_batch_larger_than_a_slice_is_replayed_in_slices() -> None:
    log = log_of(encode_batch(commits(3 * SLICE_RECORDS + 1), base_offset=0, leader_epoch=0, timestamp_ms=0))
    assert slices(log) == [SLICE_RECORDS, 2 * SLICE_RECORDS, 3 * SLICE_RECORDS]


@pytest.mark.interpreted
def test_slice_of_large_groups_ends_by_time() -> None:
    value = GroupMetadataValue("consumer", 1, "range", None, 0, ())
    groups = [(encode_group_metadata_key(f"g-{n}"), encode_group_metadata_value(value)) for n in range(7)]
    log = log_of(encode_batch(groups, base_offset=0, leader_epoch=0, timestamp_ms=0))
    assert slices(log, count(step=SLICE_S / 2).__next__) == [2, 4, 6], "each look at the clock takes half a slice"
    assert slices(log) == []


@pytest.mark.interpreted
def test_many_empty_batches_are_work_too() -> None:
    batch_count = 2 * SLICE_RECORDS + 2
    marker = encode_end_txn_marker(EndTxnMarker(committed=True, coordinator_epoch=0))
    batches = [
        encode_batch(
            [marker],
            base_offset=n,
            leader_epoch=0,
            timestamp_ms=0,
            producer_id=1,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        for n in range(batch_count)
    ]
    assert len(slices(log_of(*batches))) == 2


async def test_smallest_log_gets_its_slices_first_and_one_slice_runs_per_turn_of_the_loop() -> None:
    turns = LoadTurns()
    order: list[tuple[int, str]] = []
    turn_of_loop = 0

    async def load(name: str, log_bytes: int, slices: int) -> None:
        for _ in range(slices):
            await turns.next_slice(log_bytes)
            order.append((turn_of_loop, name))

    loads = [asyncio.ensure_future(load(name, size, 3)) for name, size in (("large", 9), ("small", 1), ("middle", 5))]
    while not all(each.done() for each in loads):
        await asyncio.sleep(0)
        turn_of_loop += 1
    assert len({turn for turn, _ in order}) == len(order), "never two slices in one turn"
    first_of = {name: [n for _, n in order].index(name) for name in ("small", "middle", "large")}
    last_of = {name: 8 - [n for _, n in reversed(order)].index(name) for name in ("small", "middle", "large")}
    assert last_of["small"] < last_of["middle"] < last_of["large"]
    assert first_of["small"] == 0


async def test_of_equal_logs_one_is_loaded_after_the_other() -> None:
    turns = LoadTurns()
    order: list[str] = []

    async def load(name: str) -> None:
        for _ in range(3):
            await turns.next_slice(1)
            order.append(name)

    await asyncio.gather(load("a"), load("b"))
    assert order == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("rest_bytes", "waited_for", "rested"),
    [(SHORT_BYTES + 1, True, True), (1, False, True), (SHORT_BYTES, True, False)],
)
async def test_load_rests_while_the_loop_has_other_work_unless_it_is_short_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, rest_bytes: int, waited_for: bool, rested: bool
) -> None:
    now = 0.0
    monkeypatch.setattr(loading, "monotonic", lambda: now)
    monkeypatch.setattr(loading, "thread_time", lambda: now)
    rests: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda delay, *call: rests.append(delay) or call_later(0, *call))
    turns = LoadTurns()

    async def load(other_work_s: float) -> None:
        nonlocal now
        for _ in range(3):
            await turns.next_slice(rest_bytes, waited_for=waited_for)
            now += 0.002  # the slice
            loop.call_soon(work, other_work_s)

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    await load(0.0)
    assert rests == []
    await load(0.003)
    assert rests == pytest.approx([0.002 * (1 if waited_for else STANDBY_RESTS)] * len(rests))
    assert bool(rests) is rested


async def test_short_load_that_an_election_waits_for_ends_the_rest_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "BUSY_S", -1.0)  # always
    monkeypatch.setattr(loading, "LONGEST_REST_S", 3600.0)
    monkeypatch.setattr(loading, "monotonic", count(step=3600).__next__)
    turns = LoadTurns()
    order: list[str] = []

    async def load(name: str, slices: int, rest_bytes: int, *, waited_for: bool) -> None:
        for _ in range(slices):
            await turns.next_slice(rest_bytes, waited_for=waited_for)
            order.append(name)

    background = asyncio.ensure_future(load("behind", 3, 1, waited_for=False))
    async with asyncio.timeout(20):
        while turns._resting is None:
            await asyncio.sleep(0)
        await load("wanted", 2, 2, waited_for=True)
    background.cancel()
    assert order == ["behind", "wanted", "wanted"]


@pytest.mark.parametrize(
    ("waited_s", "burst_s"), [(0.0, loading.SHORTEST_BURST_S), (0.002, 0.001), (0.05, loading.LONGEST_BURST_S)]
)
async def test_load_may_go_on_for_a_share_of_the_time_for_which_it_waited(
    monkeypatch: pytest.MonkeyPatch, waited_s: float, burst_s: float
) -> None:
    now = 100.0
    monkeypatch.setattr(loading, "monotonic", lambda: now)
    turns = LoadTurns()
    await turns.next_slice(1)
    await asyncio.sleep(0)  # the slice has ended
    await asyncio.sleep(0)
    now += waited_s
    assert await turns.next_slice(1) == pytest.approx(now + burst_s)


async def test_load_that_is_given_up_does_not_hold_up_the_others() -> None:
    turns = LoadTurns()
    given_up = asyncio.ensure_future(turns.next_slice(1))
    waiting = asyncio.ensure_future(turns.next_slice(2))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(20):
        await waiting
