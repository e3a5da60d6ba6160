"""A leader's records go to its log, the pod's journal, and the protocol core, which sends them to the followers.

A leader that is alone in its set does not tell the core of its batches: its commit point is the durable end of its log,
and the host tells the core the end of the log before the next event. So a commit of one replica costs no protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.log.journal.journal import Journal
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.records.batch import RecordBatch, count_of, encode_batch, placed
from muster_coordinator.records.control import LeaderChange, ReplicaSet, encode_leader_change, encode_replica_set
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets
from muster_coordinator.shard.metrics import CommitSample
from muster_coordinator.shard.ports import NO_PRODUCER, Clock
from muster_coordinator.state_machine import Records


class LeaderWriter:
    """Implements `shard.ports.PartitionWriter` for one replica, from its election to the end of its leadership. Batches
    are durable when the pod's journal is written next.

    `push_soon` asks for an end of turn of the core, which sends what was appended.
    """

    def __init__(
        self,
        partition: int,
        log: PartitionLog,
        journal: Journal,
        core: ReplicaCore,
        clock: Clock,
        sample: CommitSample,
        push_soon: Callable[[], None],
    ) -> None:
        self.end_offset = log.end_offset
        self.is_alone = False
        """The replica is ACTIVE, is its whole set, and no other replica gets its log."""
        self._partition = partition
        self._log = log
        self._journal = journal
        self._core = core
        self._clock = clock
        self._sample = sample
        self._push_soon = push_soon

    def core_changed(self) -> None:
        """The core has handled an event: look again whether the replica is alone."""
        self.is_alone = self._core.is_alone

    def append(
        self,
        records: list[Records],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] = NO_PRODUCER,
        *,
        control: bool = False,
        sets: Sets | None = None,
    ) -> None:
        """`sets`: those that a leader-change or replica-set record names."""
        base_offset = self.end_offset
        data = encode_batch(
            records,
            base_offset=base_offset,
            leader_epoch=epoch,
            timestamp_ms=now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=producer[0] >= 0,
            control=control,
        )
        end_offset = base_offset + count_of(records)
        self._log.append(data, base_offset, end_offset, epoch)
        self.end_offset = end_offset
        self._journal.stage(self._partition, base_offset, end_offset, data)
        if not self.is_alone:
            self._tell_core(Batch(base_offset, end_offset, epoch, data, sets))

    def append_leader_change(self, epoch: int, sets: Sets, now_ms: int) -> None:
        """Open `epoch`. Raises OSError."""
        self.is_alone = False  # no epoch is ACTIVE before the core knows that this record is committed
        change = LeaderChange(self._core.log_id, sets.replicas, sets.previous_replicas, sets.loss_epoch)
        self.append([(*encode_leader_change(change), None)], epoch, now_ms, control=True, sets=sets)

    def append_replica_set(self, epoch: int, replicas: tuple[str, ...], now_ms: int) -> None:
        """End a change of the set. Raises OSError."""
        record = (*encode_replica_set(ReplicaSet(replicas)), None)
        self.append([record], epoch, now_ms, control=True, sets=Sets(replicas))

    def append_imported(self, batch: RecordBatch, epoch: int) -> None:
        base_offset = self.end_offset
        end_offset = base_offset + batch.last_offset_delta + 1
        data = placed(batch, base_offset, epoch)
        self._log.append(data, base_offset, end_offset, epoch)
        self.end_offset = end_offset
        self._journal.stage(self._partition, base_offset, end_offset, data)
        if not self.is_alone:
            self._tell_core(Batch(base_offset, end_offset, epoch, data))

    def _tell_core(self, batch: Batch) -> None:
        self._core.appended(batch)
        self._sample.appended(batch.end_offset, self._clock.monotonic_s())
        self._push_soon()

    def confirm_read(self) -> int:
        if self.is_alone:
            return 0
        self._push_soon()
        return self._core.confirm_read()
