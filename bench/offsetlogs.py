"""Offsets partitions to load: real segments of offset commits, written by our own log, kept for all clones.

Each partition has its own groups, which commit the same topic partitions again and again, as groups do: a load reads
every commit and ends up with the last ones. Batches have the size that a busy Kafka broker gives them (447 thousand of
17 records on average in the measured baseline).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from builds import cache

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.checkpoint import CheckpointHead, CheckpointWriter
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.pod.chores.checkpointing import PART_ENTRIES, CheckpointerSettings
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import LeaderChange, encode_leader_change
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.records.structs import OffsetCommitValue
from muster_coordinator.replica.loading import replay_log
from muster_coordinator.replica.log_id import new_log_id
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.settings import CoordinatorSettings
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState

TOPIC = "bench"
FORMAT = 2
"""Part of the cache's key: to be raised when what is written changes."""
STARTED_MS = 1_700_000_000_000
EPOCH = 1


@dataclass(frozen=True)
class Shape:
    """The amount to load. `groups` are those of one offsets partition, `topic_partitions` those of one
    group."""

    partitions: int = 50
    records: int = 5_000_000
    groups: int = 100
    topic_partitions: int = 20
    batch_records: int = 17

    @property
    def records_per_partition(self) -> int:
        return self.records // self.partitions

    @property
    def keys_per_partition(self) -> int:
        """Each comes once in so many records."""
        return self.groups * self.topic_partitions


def group_names(partition: int, partitions: int) -> Iterator[str]:
    """Names of groups that belong to one offsets partition, without end."""
    names = (f"load-{partition}-{number}" for number in count())
    return (name for name in names if partition_for(name, partitions) == partition)


def copy_logs(shape: Shape, data: Path) -> None:
    """Make `data` the data directory of a pod that held these logs; written once, then copied from the cache."""
    kept = cache() / "offset-logs" / "-".join(map(str, (FORMAT, *vars(shape).values())))
    if not kept.exists():
        print(f"writing {shape.records:,} commits over {shape.partitions} partitions into {kept}", file=sys.stderr)
        kept.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=kept.parent))
        try:
            for partition in range(shape.partitions):
                write_log(shape, making, partition)
            os.rename(making, kept)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(kept, data)
    os.sync()  # or the first fsync of the pod would write the copy out


def write_log(shape: Shape, data: Path, partition: int) -> None:
    """The log of a partition with one replica, opened by its leader-change record, with its promise file, synced."""
    disk = OsDisk()
    directory = partition_directory(data, partition)
    PartitionLog.create(disk, directory)
    log_id = new_log_id()
    PromiseFile.create(disk, directory, log_id).store(EPOCH, "")
    log = PartitionLog.open(disk, directory, partition, LogSettings(), History(boot_id=""))
    append(log, [encode_leader_change(LeaderChange(log_id, (log_id,), ()))], STARTED_MS, control=True)
    keys = commit_keys(shape, partition)
    for start in range(0, shape.records_per_partition, shape.batch_records):
        time_ms = STARTED_MS + start
        numbers = range(start, min(start + shape.batch_records, shape.records_per_partition))
        values = [encode_offset_commit_value(OffsetCommitValue(number, -1, "", time_ms)) for number in numbers]
        append(log, [(keys[n % len(keys)], value) for n, value in zip(numbers, values, strict=True)], time_ms)
    log.sync()
    log.close()


class _AnyTopic:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


def checkpoint_logs(shape: Shape, data: Path, share: float) -> int:
    """Give each log of `copy_logs` a checkpoint, and so much of a tail behind it: `share` of what makes the next
    checkpoint due, with the pod's default settings. Returns the records behind all checkpoints.
    """
    settings = CheckpointerSettings(CoordinatorSettings().shard.checkpoint_interval_bytes)
    disk = OsDisk()
    behind = 0
    for partition in range(shape.partitions):
        directory = partition_directory(data, partition)
        log_id = PromiseFile.open(disk, directory).log_id
        log = PartitionLog.open(disk, directory, partition, LogSettings(), History(boot_id=""))
        size, end = write_checkpoint(shape, log, log_id, log.end_offset)
        tail = int(share * settings.due_bytes(size) * log.end_offset / log.size)
        if tail:
            _, end = write_checkpoint(shape, log, log_id, log.end_offset - tail)
        behind += log.end_offset - end
        log.close()
    return behind


def write_checkpoint(shape: Shape, log: PartitionLog, log_id: str, offset: int) -> tuple[int, int]:
    """Write the state up to the last batch that ends at `offset` or below. Returns its bytes, and the offset at which
    it ends. Every key comes in the records right below it, so nothing else is read."""
    state = ReplayedState(GroupCoordinator(GroupConfig(), _AnyTopic(), lambda: ""))
    start = max(offset - shape.keys_per_partition - 2 * shape.batch_records, log.start_offset)
    first = next(log.read_batches(start)).base_offset
    steps = replay_log(log, state, ShardMetrics(), first, offset)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            end: int = ended.value
            break
    writer = CheckpointWriter(OsDisk(), log.directory, CheckpointHead(SNAPSHOT_VERSION, log_id, end, EPOCH))
    for part in state.snapshot(PART_ENTRIES):
        writer.add(part)
    writer.publish()
    return writer.size, end


def append(log: PartitionLog, records: list[tuple[bytes, bytes]], time_ms: int, *, control: bool = False) -> None:
    base_offset = log.end_offset
    batch = encode_batch(records, base_offset=base_offset, leader_epoch=EPOCH, timestamp_ms=time_ms, control=control)
    log.append(batch, base_offset, base_offset + len(records), EPOCH)
    log.journaled_end = log.end_offset


def commit_keys(shape: Shape, partition: int) -> list[bytes]:
    """The record keys of all offsets that the partition's groups commit, group by group."""
    names = islice(group_names(partition, shape.partitions), shape.groups)
    return [encode_offset_commit_key(name, TOPIC, number) for name in names for number in range(shape.topic_partitions)]
