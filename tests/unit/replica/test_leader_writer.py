"""Where a leader's batches go, and what the protocol core learns of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.control import LeaderChange, ReplicaSet, decode_control
from muster_coordinator.records.offset_run import OffsetRun
from muster_coordinator.records.structs import NO_TOPIC_ID
from muster_coordinator.replica.leader_writer import LeaderWriter
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets
from muster_coordinator.shard.metrics import CommitSample, Histogram

pytestmark = pytest.mark.interpreted  # doubles stand in for log, journal and core

RECORD = (b"k", b"v", None)


class World:
    """A writer and what it writes to. `told`: the batches that the core knows; `pushes`: ends of turn asked for."""

    log_id = "log-a"
    end_offset = 10
    is_alone = False

    def __init__(self) -> None:
        self.logged: list[tuple[int, int, int]] = []
        self.journaled: list[tuple[int, int]] = []
        self.told: list[Batch] = []
        self.pushes = 0
        self.error: OSError | None = None
        double: Any = self
        self.writer = LeaderWriter(3, double, double, double, double, CommitSample(Histogram()), self.push)

    def append(self, data: bytes, base_offset: int, end_offset: int, epoch: int) -> None:
        if self.error is not None:
            raise self.error
        assert read_batch(data).base_offset == base_offset
        self.logged.append((base_offset, end_offset, epoch))

    def stage(self, partition: int, base_offset: int, end_offset: int, data: bytes) -> None:
        self.journaled.append((base_offset, end_offset))

    def appended(self, batch: Batch) -> None:
        self.told.append(batch)

    def confirm_read(self) -> int:
        return 5

    def monotonic_s(self) -> float:
        return 0.0

    def push(self) -> None:
        self.pushes += 1

    def become_alone(self) -> None:
        self.is_alone = True
        self.writer.core_changed()

    @property
    def controls(self) -> Sequence[object]:
        (record,) = read_batch(self.told[-1].data).records()
        return decode_control(record.key, record.value), self.told[-1].sets


def test_run_moves_the_end_of_the_log_by_its_records() -> None:
    world = World()
    run = OffsetRun("g", "t", b"key", bytes(18 * 3), 18, (0, 0, 0), (0, 0, 0), (0, 0, 0), 1, NO_TOPIC_ID)
    world.writer.append([RECORD, run, RECORD], 4, 1)
    assert (world.writer.end_offset, world.logged, world.journaled) == (15, [(10, 15, 4)], [(10, 15)])
    assert read_batch(world.told[0].data).end_offset == world.told[0].end_offset == 15


def test_batch_goes_to_log_and_journal_and_to_the_core() -> None:
    world = World()
    world.writer.append([RECORD, RECORD], 4, 99)
    assert (world.logged, world.journaled, world.writer.end_offset) == ([(10, 12, 4)], [(10, 12)], 12)
    assert [(batch.base_offset, batch.end_offset, batch.epoch) for batch in world.told] == [(10, 12, 4)]
    assert world.pushes == 1


def test_core_learns_nothing_of_the_batches_and_reads_of_a_leader_that_is_alone() -> None:
    world = World()
    world.become_alone()
    world.writer.append([RECORD], 4, 99)
    imported = read_batch(encode_batch([(b"k", b"v")] * 2, base_offset=0, leader_epoch=0, timestamp_ms=1))
    world.writer.append_imported(imported, 4)
    assert world.writer.confirm_read() == 0
    assert world.logged == [(10, 11, 4), (11, 13, 4)]
    assert (world.told, world.pushes) == ([], 0)


def test_read_of_a_leader_with_followers_waits_for_a_round_that_is_sent_with_this_turn() -> None:
    world = World()
    assert (world.writer.confirm_read(), world.pushes) == (5, 1)


def test_core_learns_of_the_record_that_opens_an_epoch_and_of_that_which_ends_a_change_of_the_set() -> None:
    world = World()
    world.become_alone()
    world.writer.append_leader_change(5, Sets(("log-a",), ("log-b",)), 99)
    assert world.controls == (LeaderChange("log-a", ("log-a",), ("log-b",)), Sets(("log-a",), ("log-b",)))
    world.writer.append_replica_set(5, ("log-a",), 99)
    assert world.controls == (ReplicaSet(("log-a",)), Sets(("log-a",)))


def test_batch_that_the_log_did_not_take_is_nowhere() -> None:
    world = World()
    world.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        world.writer.append([RECORD], 4, 99)
    assert (world.writer.end_offset, world.journaled, world.told) == (10, [], [])
