"""What a re-shard does to partitions, over several pods in one process with real logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.replicas import AnyTopic, ReplicaPod, ReplicaPods

from muster_coordinator.calls import FenceRefusal
from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.control import NOT_IMPORTING, Fence, decode_control, encode_fence
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.fencing import FenceRefusedError, Fencing
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.states import ShardState

NewPods = Callable[..., Awaitable[ReplicaPods]]


def fencing(pod: ReplicaPod) -> Fencing:
    return Fencing(pod.up.shards, lambda partition: None)


def commits(first: int, count: int, position: int) -> bytes:
    """Offsets `first` and up of group g, one record each, as a re-shard writes them."""
    records = [
        (encode_offset_commit_key("g", "t", 0), encode_offset_commit_value(OffsetCommitValue(first + i, -1, "", 7, -1)))
        for i in range(count)
    ]
    return encode_batch(records, base_offset=position, leader_epoch=0, timestamp_ms=1234)


async def refused(call: Awaitable[Fence]) -> FenceRefusal:
    with pytest.raises(FenceRefusedError) as caught:
        await call
    return caught.value.reason


async def test_closed_partition_answers_nobody_and_keeps_what_it_acknowledged(pods: ReplicaPods) -> None:
    assert await pods[0].commit(41) == 0
    fence = await fencing(pods[0]).close(0, 7, importing=False)
    assert fence == Fence(7, closed=True, imported=NOT_IMPORTING)
    assert await pods[0].commit(42) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await pods[0].fetch() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await fencing(pods[0]).open(0, 7) == Fence(7, closed=False)
    assert await pods[0].fetch() == 41
    assert await pods[0].commit(42) == 0


async def test_leader_that_was_deposed_without_knowing_answers_no_fence_call(pods: ReplicaPods) -> None:
    """Its successor has opened the partition again: an answer from the old state would say that it is closed."""
    await fencing(pods[0]).close(0, 7, importing=False)
    await pods.caught_up()
    pods.network.isolate("pod-0")
    deposed = asyncio.ensure_future(refused(fencing(pods[0]).close(0, 7, importing=False)))
    await pods.elect(1, force=True)
    assert await fencing(pods[1]).open(0, 7) == Fence(7, closed=False)
    assert await asyncio.wait_for(deposed, 10) is FenceRefusal.NOT_LEADER


async def test_what_was_on_its_way_when_the_partition_closed_is_answered_as_it_ends(pods: ReplicaPods) -> None:
    asked = pods[0].ask_commit(41)
    closing = asyncio.ensure_future(fencing(pods[0]).close(0, 1, importing=False))
    code = await asyncio.wait_for(asked.done, 10)
    await closing
    await fencing(pods[0]).open(0, 1)
    done = isinstance(code, m.OffsetCommitResponse)
    assert await pods[0].fetch() == (41 if done else -1)


async def test_member_that_waits_in_a_rebalance_is_sent_away(pods: ReplicaPods) -> None:
    join = m.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", (("range", b""),), None, "c", "/h", 3)
    waiting = pods[0].ask(join)
    await pods.until(lambda: pods[0].shard().machine.group("g") is not None)
    await fencing(pods[0]).close(0, 1, importing=False)
    assert await asyncio.wait_for(waiting.done, 10) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pods[0].shard().state is ShardState.FENCED


@pytest.mark.parametrize("checkpoints", [False, True])
async def test_every_later_leader_is_closed_too(new_pods: NewPods, checkpoints: bool) -> None:
    pods = await new_pods(checkpoints=checkpoints)
    assert await pods[0].commit(41) == 0
    await fencing(pods[0]).close(0, 1, importing=False)
    await pods.caught_up()
    await pods[0].kill()
    await pods[0].start()
    await pods.elect(1)
    assert await pods[1].fetch() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pods[1].shard().committed_fence == Fence(1, closed=True)
    for index in (0, 2):  # with its state from a log that it has just opened, and from a warm standby
        await pods.elect(index, force=True)
        assert await pods[index].fetch() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await fencing(pods[2]).open(0, 1)
    await pods.elect(0, force=True)
    assert await pods[0].fetch() == 41


async def test_leader_that_was_cut_off_closes_nothing_and_serves_nothing(pods: ReplicaPods) -> None:
    assert await pods[0].commit(41) == 0
    pods.network.isolate("pod-0")
    assert await refused(fencing(pods[0]).close(0, 1, importing=False)) in (
        FenceRefusal.NOT_COMMITTED,
        FenceRefusal.NOT_LEADER,
    )
    await pods.elect(1, force=True)
    assert await pods[1].commit(42) == 0
    pods.network.heal()
    await pods.caught_up()
    assert await pods[1].fetch() == 42


async def test_calls_repeat_and_late_ones_do_nothing(pods: ReplicaPods) -> None:
    gate = fencing(pods[0])
    for _ in range(2):
        assert (await gate.close(0, 5, importing=False)).closed
    end = pods[0].end()
    await gate.close(0, 5, importing=False)
    assert pods[0].end() == end, "a repeated call writes nothing"
    assert await refused(gate.open(0, 4)) is FenceRefusal.STALE
    for _ in range(2):
        assert not (await gate.open(0, 5)).closed
    assert await refused(gate.close(0, 5, importing=False)) is FenceRefusal.STALE
    assert await refused(gate.close(0, 4, importing=False)) is FenceRefusal.STALE
    assert (await gate.close(0, 6, importing=False)).closed
    assert await refused(gate.open(0, 5)) is FenceRefusal.STALE
    assert await refused(fencing(pods[1]).close(0, 6, importing=False)) is FenceRefusal.NOT_LEADER


async def test_new_partition_takes_in_its_log_through_a_change_of_leader(pods: ReplicaPods) -> None:
    gate = fencing(pods[0])
    assert await gate.close(0, 3, importing=True) == Fence(3, True, 0)
    assert (await gate.take_in(0, 3, 0, commits(100, 5, 0) + commits(105, 5, 5), last=False)).imported == 10
    assert (await gate.take_in(0, 3, 0, commits(0, 10, 0), last=False)).imported == 10, "it was taken in before"
    await pods[0].kill()
    await pods.elect(1)
    gate = fencing(pods[1])
    assert (await gate.take_in(0, 3, 10, commits(110, 5, 10), last=True)) == Fence(3, True, 15, True)
    assert (await gate.take_in(0, 3, 15, commits(0, 5, 15), last=True)).imported == 15, "it is complete"
    assert await pods[1].fetch() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await gate.open(0, 3)
    assert await pods[1].fetch() == 114
    await pods[0].start()
    await pods.caught_up()
    contents = pods.contents()
    assert all(content == contents[0] for content in contents)
    assert {batch.max_timestamp_ms for batch in pods[1].up.replicas[0].log.read_batches(0)} >= {1234}


async def test_nothing_is_taken_in_where_it_does_not_belong(pods: ReplicaPods) -> None:
    gate = fencing(pods[0])
    assert await refused(gate.take_in(0, 3, 0, commits(0, 1, 0), last=False)) is FenceRefusal.STALE
    assert await pods[0].commit(1) == 0
    assert await refused(gate.close(0, 3, importing=True)) is FenceRefusal.NOT_EMPTY
    await gate.close(0, 3, importing=False)
    assert await refused(gate.take_in(0, 3, 0, commits(0, 1, 0), last=False)) is FenceRefusal.STALE, (
        "it is an old partition"
    )


def _broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(commits(0, 2, 1), id="not where the last one ended"),
        pytest.param(_broken(commits(0, 2, 0)), id="CRC"),
        pytest.param(commits(0, 2, 0)[:-5], id="cut off"),
        pytest.param(encode_batch([(b"\0\x09", b"")], base_offset=0, leader_epoch=0, timestamp_ms=1), id="unknown"),
        pytest.param(
            encode_batch([(b"\0\0\0\1", b"\0" * 6)], base_offset=0, leader_epoch=0, timestamp_ms=1, control=True),
            id="control",
        ),
    ],
)
async def test_bytes_that_no_reshard_writes_change_nothing(pods: ReplicaPods, data: bytes) -> None:
    gate = fencing(pods[0])
    await gate.close(0, 3, importing=True)
    end = pods[0].end()
    assert await refused(gate.take_in(0, 3, 0, data, last=False)) is FenceRefusal.INVALID
    assert pods[0].end() == end


def test_fence_is_in_every_snapshot_and_outlives_compaction() -> None:
    closed, restored = (ReplayedState(GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix")) for _ in range(2))
    closed.fence = Fence(7, True, 15)
    for _ in restored.restore(closed.snapshot(100)):
        pass
    assert restored.fence == Fence(7, True, 15)
    record = encode_fence(Fence(7, True, 15))
    batch = read_batch(encode_batch([record], base_offset=3, leader_epoch=1, timestamp_ms=1, control=True))
    compaction = Compaction(now_ms=10**12, delete_retention_ms=0)
    compaction.note(batch)
    assert compaction.keep(batch) == batch.data


@pytest.mark.parametrize("fence", [Fence(1, True), Fence(50, False, 0), Fence(2**31 - 1, True, 2**40, True)])
def test_fence_record_is_read_as_it_was_written(fence: Fence) -> None:
    key, value = encode_fence(fence)
    assert decode_control(key, value) == fence
    with pytest.raises(RecordDecodeError):
        decode_control(key, value[:-1])
    with pytest.raises(UnsupportedValueVersionError):
        decode_control(key, b"\0\1" + value[2:])
