"""One replica: a log id, its durable promise and its log.

Blocking calls (``create``, ``open_log``, ``promise``) are run in a thread by the manager; appends only stage bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import structlog

from muster_coordinator.groups.result import Record
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.checkpoint import CheckpointFile, fits
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.history import History
from muster_coordinator.log.journal import Journal
from muster_coordinator.log.partition_log import LogSettings, PartitionLog
from muster_coordinator.log.salvage import salvage
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import LeaderChange, encode_leader_change
from muster_coordinator.replication.promise import PromiseFile

logger = structlog.get_logger(__name__)


class Replica:
    """``log`` is None until ``open_log``; ``leading_epoch`` is the last epoch that this process promised to itself."""

    def __init__(self, disk: Disk, directory: Path, partition: int, promise: PromiseFile, journal: Journal) -> None:
        self.partition = partition
        self.directory = directory
        self.promised = promise
        self.log_id = promise.log_id
        self.leading_epoch = -1
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

    def open_log(self, settings: LogSettings) -> None:
        """Recover the log. Raises DamagedLogError: this replica must not serve; OSError: try again."""
        if self._log is None:
            if self._history is None:
                self._history = self._journal.recovered(self.partition, self.log_id)
            self._log = PartitionLog.open(self._disk, self.directory, self.partition, settings, self._history)
            self._history = None

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

    def close_log(self) -> None:
        """Flush and close the files. Raises OSError."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def append_records(
        self,
        records: list[Record],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] = (-1, -1),
        *,
        control: bool = False,
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

    def append_leader_change(
        self, epoch: int, replicas: tuple[str, ...], previous_replicas: tuple[str, ...], now_ms: int
    ) -> None:
        change = LeaderChange(self.log_id, replicas, previous_replicas)
        self.append_records([(*encode_leader_change(change), None)], epoch, now_ms, control=True)
