"""Loading: in slices, and a load that fails says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from crc32c import crc32c
from tests.support.replicas import AnyTopic
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_coordinator.replica.loading import SLICE_RECORDS, replay_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
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
    """Put one batch into partition 0's segment, past the pod, which is stopped; `crc_only`: its records are noise
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
    assert message.startswith("RecordDecodeError: the record at offset 1 of __consumer_offsets-0: ")


async def test_record_of_a_later_version_fails_the_load_and_says_where_it_is(pod: PodUnderTest) -> None:
    key, value = commits(1)[0]
    assert value is not None
    message = await fails_to_load(pod, [(key, value), (key, b"\x00\x05" + value[2:])])
    assert message.endswith(
        "the record at offset 2 of __consumer_offsets-0: OffsetCommitValue version 5 is not supported"
    )


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


def slices(log: PartitionLog) -> list[int]:
    """Records replayed so far, after each slice but the last."""
    machine = Counting()
    return [machine.replayed for _ in replay_log(log, ReplayedState(machine), ShardMetrics())]


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
def test_large_record_takes_a_slice_of_its_own() -> None:
    member = GroupMember("m", None, "c", "/h", 1, 1, bytes(64 * SLICE_RECORDS), b"")
    value = GroupMetadataValue("consumer", 1, "range", None, 0, (member,))
    groups = [(encode_group_metadata_key(f"g-{n}"), encode_group_metadata_value(value)) for n in range(3)]
    log = log_of(encode_batch(groups, base_offset=0, leader_epoch=0, timestamp_ms=0))
    assert slices(log) == [1, 2, 3]


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
