"""One replica: a log id, its durable promise and its log.

Blocking calls (``create``, ``open_log``, ``promise``) are run in a thread by the manager; appends only stage bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.beside import LogCopy, finish_swap, swap_count
from muster_coordinator.log.checkpoint import CheckpointFile, discard, fits
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.history import History
from muster_coordinator.log.journal import Journal
from muster_coordinator.log.partition_log import LogSettings, PartitionLog
from muster_coordinator.log.salvage import salvage, set_aside
from muster_coordinator.records.batch import RecordBatch, encode_batch, placed
from muster_coordinator.records.control import (
    Fence,
    LeaderChange,
    ReplicaSet,
    encode_fence,
    encode_leader_change,
    encode_replica_set,
)
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets
from muster_coordinator.state_machine import Record

logger = structlog.get_logger(__name__)


class StoredReplica:
    """``log`` is None until ``open_log``. ``on_batch`` hears of each batch that ``append_records`` appended; None: the
    protocol core need not know of it at once.
    """

    def __init__(self, disk: Disk, directory: Path, partition: int, promise: PromiseFile, journal: Journal) -> None:
        self.partition = partition
        self.directory = directory
        self.promised = promise
        self.log_id = promise.log_id
        self.on_batch: Callable[[Batch], None] | None = None
        self._disk = disk
        self._journal = journal
        self._log: PartitionLog | None = None
        self._history: History | None = None  # what the journal has of the log, until the log is open

    @property
    def log(self) -> PartitionLog:
        if self._log is None:
            raise AssertionError(f"the log of partition {self.partition} is not open")
        return self._log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def open_log_or_none(self) -> PartitionLog | None:
        return self._log

    @property
    def end_offset(self) -> int:
        log = self._log
        assert log is not None
        return log.end_offset

    @property
    def never_used(self) -> bool:
        """True for a log that never held a record: the only kind that may be bootstrapped.

        An epoch may have been promised by a bootstrap that ended before its first record.
        """
        return self.log.end_offset == 0

    @property
    def promise(self) -> Promise:
        promised = self.promised
        return Promise(promised.epoch, promised.leader, promised.incarnation, promised.rebuilding)

    def store_promise(self, promise: Promise) -> None:
        """Durably. Raises OSError."""
        self.promised.store(promise.epoch, promise.leader, promise.incarnation, promise.rebuilding)

    def open_log(self, settings: LogSettings) -> None:
        """Recover the log. Raises DamagedLogError: this replica must not serve; OSError: try again."""
        if self._log is None:
            if self._history is None:
                finish_swap(self._disk, self.directory)
                self._history = self._journal.recovered(self.partition, self._journal_id)
            self._log = PartitionLog.open(self._disk, self.directory, self.partition, settings, self._history)
            self._history = None

    @property
    def _journal_id(self) -> str:
        """Under which the journal keeps the present log: one that was swapped in has nothing to do with that before."""
        count = swap_count(self._disk, self.directory)
        return f"{self.log_id}/{count}" if count else self.log_id

    def begin_copy(self, segment_bytes: int) -> LogCopy:
        """An empty log beside this one. Raises OSError."""
        return LogCopy(self._disk, self.directory, segment_bytes)

    def swap_in(self, copy: LogCopy, horizon: int, settings: LogSettings) -> None:
        """Put the copy in the place of the log, which must have nothing that is not in the journal, and open it.

        Raises OSError, DamagedLogError: the log is closed then.
        """
        self.close_log()
        copy.swap_in(horizon, swap_count(self._disk, self.directory) + 1)
        self.open_log(settings)

    def begin_anew(self, reason: str, settings: LogSettings) -> None:
        """Set the damaged log aside and open an empty one. The promise stays, and says from before on that data was
        lost. Raises OSError, DamagedLogError.
        """
        promised = self.promised
        promised.store(promised.epoch, promised.leader, promised.incarnation + 1, True)
        self.close_log()
        set_aside(self._disk, self.directory, swap_count(self._disk, self.directory), reason)
        self._history = None
        self.open_log(settings)

    def discard_checkpoint(self) -> None:
        """Durably. Raises OSError."""
        discard(self._disk, self.directory)

    def salvage(self, error: DamagedLogError) -> None:
        """The log cannot be opened: keep what the journal has of it beside it, and let the journal go. Raises
        OSError."""
        history = self._history
        if history is not None and (history.batches or history.doubt):
            folder = salvage(self._disk, self.directory, history, str(error))
            self._history = replace(history, batches=())
            logger.warning("journaled_batches_saved", partition=self.partition, folder=str(folder))
        self._journal.release(self.partition)

    def open_checkpoint(self) -> CheckpointFile | None:
        """The checkpoint that the log goes on from; None if there is none. The caller closes it."""
        file = CheckpointFile.open(self._disk, self.directory)
        if file is None:
            return None
        head = file.head
        foreign = head.log_id != self.log_id or head.version != SNAPSHOT_VERSION
        reason = f"it is of log {head.log_id}, version {head.version}" if foreign else fits(head, self.log)
        if not reason:
            return file
        file.close()
        logger.warning("checkpoint_ignored", directory=str(self.directory), reason=reason)
        return None

    def close_log(self, *, sync: bool = False) -> None:
        """Flush and close the files; ``sync``: make them durable, too. Raises OSError."""
        log, self._log = self._log, None
        if log is not None:
            if sync:
                log.begin_sync(everything=True).run()
            log.close()

    def append_records(
        self,
        records: list[Record],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] = (-1, -1),
        *,
        control: bool = False,
        sets: Sets | None = None,
    ) -> None:
        """Append one batch. Durable, and reported so by the manager, once the pod's journal has been written."""
        log = self._log
        assert log is not None
        base_offset = log.end_offset
        batch = encode_batch(
            records,
            base_offset=base_offset,
            leader_epoch=epoch,
            timestamp_ms=now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=producer[0] >= 0,
            control=control,
        )
        end_offset = base_offset + len(records)
        log.append(batch, base_offset, end_offset, epoch)
        self._journal.stage(self.partition, base_offset, end_offset, batch)
        if self.on_batch is not None:
            self.on_batch(Batch(base_offset, end_offset, epoch, batch, sets))

    def append_leader_change(self, epoch: int, sets: Sets, now_ms: int) -> None:
        change = LeaderChange(self.log_id, sets.replicas, sets.previous_replicas)
        self.append_records([(*encode_leader_change(change), None)], epoch, now_ms, control=True, sets=sets)

    def append_replica_set(self, epoch: int, replicas: tuple[str, ...], now_ms: int) -> None:
        record = (*encode_replica_set(ReplicaSet(replicas)), None)
        self.append_records([record], epoch, now_ms, control=True, sets=Sets(replicas))

    def append_fence(self, epoch: int, fence: Fence, now_ms: int) -> None:
        self.append_records([(*encode_fence(fence), None)], epoch, now_ms, control=True)

    def append_imported(self, batch: RecordBatch, epoch: int) -> None:
        """Append a batch of another log, at the end of this one and in this epoch; its CRC covers neither."""
        log = self.log
        base_offset = log.end_offset
        end_offset = base_offset + batch.last_offset_delta + 1
        data = placed(batch, base_offset, epoch)
        log.append(data, base_offset, end_offset, epoch)
        self._journal.stage(self.partition, base_offset, end_offset, data)
        if self.on_batch is not None:
            self.on_batch(Batch(base_offset, end_offset, epoch, data))

    def append_received(self, batches: Sequence[Batch], end_offset: int) -> None:
        """Append what another replica sent; the log ends at ``end_offset`` then, with gaps where records are missing.

        Durable like ``append_records``. Raises OSError.
        """
        for batch in batches:
            self._skip_to(batch.base_offset)
            self.log.append(batch.data, batch.base_offset, batch.end_offset, batch.epoch)
            self._journal.stage(self.partition, batch.base_offset, batch.end_offset, batch.data)
        self._skip_to(end_offset)

    def _skip_to(self, offset: int) -> None:
        log = self.log
        if log.end_offset < offset:
            self._journal.stage_gap(self.partition, log.end_offset, offset)
            log.skip_to(offset)

    def stage_truncation(self, offset: int) -> None:
        """Tell the journal that the log is about to be cut, so that it ends at ``offset``. All that was appended must
        be durable. Raises OSError.
        """
        self.log.flush_segment()
        end = self.log.cut_end(offset)
        self._journal.stage_truncation(self.partition, end)
        if end < offset:
            self._journal.stage_gap(self.partition, end, offset)
