"""One replica as a pod stores it: a log id, a durable promise, and the log with its checkpoint.

Calls that block run in threads of the pod. Appends only stage bytes, and run on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from muster_coordinator.log.checkpoint import CheckpointFile, discard, fits
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.journal.journal import Journal
from muster_coordinator.log.segments.copy import LogCopy, finish_swap, swap_count, swap_mark
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog
from muster_coordinator.log.segments.salvage import salvage, set_aside
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Batch

logger = structlog.get_logger(__name__)


class StoredReplica:
    """The log can be used from `open_log` on."""

    def __init__(self, disk: Disk, directory: Path, partition: int, promise: PromiseFile, journal: Journal) -> None:
        self.partition = partition
        self.directory = directory
        self.promised = promise
        self.log_id = promise.log_id
        self._disk = disk
        self.journal = journal
        self.log_or_none: PartitionLog | None = None
        self._history: History | None = None  # what the journal has of the log, until the log is open

    @property
    def log(self) -> PartitionLog:
        if self.log_or_none is None:
            raise AssertionError(f"the log of partition {self.partition} is not open")
        return self.log_or_none

    @property
    def is_open(self) -> bool:
        return self.log_or_none is not None

    @property
    def end_offset(self) -> int:
        log = self.log_or_none
        assert log is not None
        return log.end_offset

    @property
    def never_used(self) -> bool:
        """True for a log that has no record and lost none. No other log may be bootstrapped. An epoch may be promised
        already, by a bootstrap that ended before its first record."""
        return self.log.end_offset == 0 and not self.promised.rebuilding

    @property
    def promise(self) -> Promise:
        promised = self.promised
        return Promise(promised.epoch, promised.leader, promised.incarnation, promised.rebuilding, promised.used)

    def store_promise(self, promise: Promise) -> None:
        """Store `promise` durably. Raises OSError."""
        self.promised.store(promise.epoch, promise.leader, promise.incarnation, promise.rebuilding, promise.used)

    @property
    def stopped(self) -> str:
        """The reason why people have to look at this replica before it takes part again; "": they need not."""
        return self.promised.stopped

    def stop(self, reason: str) -> None:
        """Store that people have to look at this replica, durably. No promise may be under way. Raises OSError."""
        self.promised.stop(reason)

    def open_log(self, settings: LogSettings) -> None:
        """Recover the log. Raises DamagedLogError (this replica must not serve) or OSError (try again)."""
        if self.log_or_none is None:
            if self._history is None:
                finish_swap(self._disk, self.directory)
                self._history = self._recovered()
            self.log_or_none = PartitionLog.open(self._disk, self.directory, self.partition, settings, self._history)
            self._history = None

    def _recovered(self) -> History:
        """The journal's history of the present log. A log that was never counted misses nothing (ADR 26), so the doubt
        is taken away: a new log must not be suspected for records that the journal lost before it began."""
        history = self._journaled()
        return history if self.promised.used else replace(history, doubt="")

    def _journaled(self) -> History:
        """The journal's history of the present log. If the journal has nothing yet, a log that was swapped in tells
        itself the end that it had then: damage at its end must not pass for a write that was torn."""
        count, end_offset = swap_mark(self._disk, self.directory)
        history = self.journal.recovered(self.partition, self._name(count))
        return history if history.known_end >= 0 else replace(history, known_end=end_offset)

    @property
    def log_name(self) -> str:
        """The name of the present log, in journal and archive. A log that was swapped in has another name than the one
        before it. Raises DamagedLogError, OSError."""
        return self._name(swap_count(self._disk, self.directory))

    def _name(self, count: int) -> str:
        return f"{self.log_id}/{count}" if count else self.log_id

    def begin_copy(self, segment_bytes: int) -> LogCopy:
        """Returns an empty log in the same directory. Raises OSError."""
        return LogCopy(self._disk, self.directory, segment_bytes)

    def swap_in(self, copy: LogCopy, horizon: int, settings: LogSettings) -> None:
        """Replace the log by `copy` and open it. All that was appended must be in the journal.

        Raises OSError, DamagedLogError; the log is closed then.
        """
        self.close_log()
        copy.swap_in(horizon, swap_count(self._disk, self.directory) + 1)
        self._begin_history()
        self.open_log(settings)

    def _begin_history(self) -> None:
        """The log is a new one. What the journal lost before is of other logs."""
        self._history = replace(self._journaled(), doubt="", cache_lost=False)

    def begin_anew(self, reason: str, settings: LogSettings) -> None:
        """Set the damaged log aside and open an empty one. The promise stays, and says that data was lost before the
        log is touched. Raises OSError, DamagedLogError.
        """
        promised = self.promised
        promised.store(promised.epoch, promised.leader, promised.incarnation + 1, True)
        self.close_log()
        set_aside(self._disk, self.directory, swap_count(self._disk, self.directory), reason)
        self._begin_history()
        self.open_log(settings)

    def name_in_journal(self) -> None:
        """Stage in the journal where a log ends that did not grow there: a start that finds the journal damaged further
        in front then does not take it that records of this log are missing. All of it must be durable.
        """
        self.journal.stage_truncation(self.partition, self.log.end_offset)

    def discard_checkpoint(self) -> None:
        """Remove the checkpoint durably. Raises OSError."""
        discard(self._disk, self.directory)

    def salvage(self, error: DamagedLogError) -> None:
        """The log cannot be opened: save its batches in the journal to a folder next to it, with the reason, and remove
        them from the journal. The log stays refused, whatever the next start sees of it. Raises OSError."""
        history = self._history
        if history is not None:
            folder = salvage(self._disk, self.directory, history, str(error))
            self._history = replace(history, batches=())
            logger.warning("journaled_batches_saved", partition=self.partition, folder=str(folder))
        self.journal.release(self.partition)

    def open_checkpoint(self, version: int | None) -> CheckpointFile | None:
        """Returns the checkpoint from which the log continues, for the caller to close; None if there is none of this
        `version`, or none at all."""
        file = CheckpointFile.open(self._disk, self.directory)
        if file is None:
            return None
        head = file.head
        foreign = head.log_id != self.log_id or version not in (None, head.version)
        reason = f"it is of log {head.log_id}, version {head.version}" if foreign else fits(head, self.log)
        if not reason:
            return file
        file.close()
        logger.warning("checkpoint_ignored", directory=str(self.directory), reason=reason)
        return None

    def close_log(self, *, sync: bool = False) -> None:
        """Flush and close the files. `sync`: make them durable, too. Raises OSError."""
        log, self.log_or_none = self.log_or_none, None
        if log is not None:
            if sync:
                log.begin_sync(everything=True).run()
            log.close()

    def append_received(self, batches: Sequence[Batch], end_offset: int) -> None:
        """Append what another replica sent. The log ends at `end_offset` then, with gaps where records are missing.

        The batches are durable when the pod's journal is written next. Raises OSError.
        """
        for batch in batches:
            self._skip_to(batch.base_offset)
            self.log.append(batch.data, batch.base_offset, batch.end_offset, batch.epoch)
            self.journal.stage(self.partition, batch.base_offset, batch.end_offset, batch.data)
        self._skip_to(end_offset)

    def _skip_to(self, offset: int) -> None:
        log = self.log
        if log.end_offset < offset:
            self.journal.stage_gap(self.partition, log.end_offset, offset)
            log.skip_to(offset)

    def stage_truncation(self, offset: int) -> None:
        """Stage in the journal that the log will be cut to end at `offset`. All that was appended must be durable.
        Raises OSError.
        """
        self.log.flush_segment()
        end = self.log.cut_end(offset)
        self.journal.stage_truncation(self.partition, end)
        if end < offset:
            self.journal.stage_gap(self.partition, end, offset)
