"""A pod's data directory: the journal and its writer, the replicas, their logs.

    <data>/journal/                    one journal for all partitions (ADR 1)
    <data>/__consumer_offsets-<p>/     segments in Kafka's format, leader-epoch-checkpoint, muster.promise
    <data>/lost/                       what the journal had of logs whose directory is gone
    <data>/removed/                    a file for each partition whose replica here left its set and was deleted

``open``, ``create_replica`` and ``open_log`` block: the manager runs them in its threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk, read_whole_file, replace_file
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.flush_state import FlushState
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.copy import LogCopy
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.log.segments.salvage import FOLDER, salvage
from muster_coordinator.log.writer import JournalWriter, Pace
from muster_coordinator.replica.log_id import new_log_id
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseError, PromiseFile
from muster_coordinator.replica.stored import StoredReplica

__all__ = ["DamagedLogError", "Storage", "StorageSettings"]

logger = structlog.get_logger(__name__)

LOST_NAME = "lost"
REMOVED_NAME = "removed"
SYNC_AT_END_S = 5.0
"""An orderly end that takes longer leaves what is not synced yet to the journal: a pod has its grace period only."""
_DIRECTORY_PREFIX = "__consumer_offsets-"


@dataclass(frozen=True)
class StorageSettings:
    """Sizes in bytes. ``boot_id`` identifies this start of the machine, whose page cache outlives a process."""

    segment_bytes: int
    journal_bytes: int
    flush_interval_ms: int
    boot_id: str
    flush_os: bool = False
    """Leave it to the operating system when what was written reaches the disk, as Kafka does by default. Promises are
    synced all the same."""


class Storage:
    """``on_durable``: partition -> log end that is durable now. ``on_failed``: a write to journal or log failed."""

    def __init__(
        self,
        data_dir: Path,
        disk: Disk,
        settings: StorageSettings,
        on_durable: Callable[[dict[int, int]], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self.replicas: dict[int, StoredReplica] = {}
        self.lost_power = False
        """Under flush os the power was lost since the last write: logs may lack what was acked."""
        self.damage: dict[int, str] = {}  # partition -> why its replica here must not serve
        self.set_aside: dict[int, str] = {}  # partition -> why its log began anew, in this run of the pod
        self._data_dir = data_dir
        self._disk = disk
        self._settings = settings
        self._log_settings = LogSettings(segment_bytes=settings.segment_bytes)
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._recovering = threading.Lock()  # the journal's history is handed out to one log at a time
        self._gone: set[int] = set()  # partitions whose log left its set and was deleted
        self._journal: Journal | None = None
        self.pace = Pace()
        """Of the disk that has journal and promises."""
        self._writer: JournalWriter | None = None
        self._flushing: asyncio.TimerHandle | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Recover the journal and find the replicas; their logs are opened when they are needed. Raises OSError."""
        self._disk.mkdir(self._data_dir)
        self._journal = Journal.open(
            self._disk,
            self._data_dir / "journal",
            JournalSettings(self._settings.journal_bytes, durable=not self._settings.flush_os),
            self._settings.boot_id,
        )
        self._mark = FlushState(self._disk, self._data_dir, self._settings.boot_id)
        self.lost_power = self._mark.lost_power
        if self._settings.flush_os and not self.lost_power:
            self._mark.running()
        self._finish_removals()
        for name in sorted(self._disk.listdir(self._data_dir)):
            text = name.removeprefix(_DIRECTORY_PREFIX)
            if text != name and text.isdigit():
                self._find_replica(int(text), self._data_dir / name)

    def _find_replica(self, partition: int, directory: Path) -> None:
        """A directory without a promise file is no replica (it has no log id): it is left alone."""
        if partition in self._gone and not self._disk.listdir(directory):
            return
        if PROMISE_NAME not in self._disk.listdir(directory):
            logger.warning("directory_without_promise", directory=str(directory))
            return
        try:
            promise = PromiseFile.open(self._disk, directory)
        except PromiseError as error:
            logger.error("promise_unreadable", directory=str(directory), error=str(error))
            self.damage[partition] = str(error)
            return
        self.replicas[partition] = StoredReplica(self._disk, directory, partition, promise, self._open_journal)

    def power_loss_is_noted(self) -> None:
        """Every replica here that may lack what the power loss took has noted that. Blocks. Raises OSError."""
        self.lost_power = False
        if self._settings.flush_os:
            self._mark.running()

    def start(self) -> None:
        """On the event loop: begin to write."""
        self._writer = JournalWriter(self._open_journal, self._log_of, self._on_durable, self._on_failed, self.pace)
        self._writer.start()
        self._flush_segments()

    async def close(self) -> None:
        """Write everything out, make it durable and close the files: the next start need not read the journal. A log
        that fails is left as it is: the next process recovers it from disk and journal. Raises OSError: the journal
        failed."""
        if self._flushing is not None:
            self._flushing.cancel()
        if self._writer is not None:
            await self._writer.close()
        failed = self.failed_logs
        synced = await self._close_logs(failed)
        if self._journal is not None:
            try:
                await asyncio.to_thread(self._journal.end, synced)
            except OSError as error:
                logger.warning("journal_kept", error=str(error))  # the next start reads it
            await asyncio.to_thread(self._journal.close, sync=self._mark.needs_end)
        if not failed:
            await asyncio.to_thread(self._mark.ended)

    async def _close_logs(self, failed: dict[int, str]) -> set[int]:
        """Partitions whose logs were synced; of others that fail now ``failed`` says why."""
        time = asyncio.get_running_loop().time
        until, synced = time() + SYNC_AT_END_S, set[int]()
        for replica in self.replicas.values():
            if not replica.is_open or replica.partition in failed:
                continue
            sync = self._mark.needs_end or time() < until
            try:
                await asyncio.to_thread(replica.close_log, sync=sync)
            except OSError as error:
                failed[replica.partition] = str(error)
                logger.error("log_not_synced", partition=replica.partition, error=str(error))
                continue
            if sync:
                synced.add(replica.partition)
        return synced

    @property
    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise AssertionError("the storage is not open")
        return self._journal

    def _log_of(self, partition: int) -> PartitionLog | None:
        replica = self.replicas.get(partition)
        return None if replica is None else replica.open_log_or_none

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """A journal write is on its way; ``on_durable`` or ``on_failed`` follows."""
        return self._writer is not None and self._writer.is_writing

    def submit(self) -> None:
        """End of a turn: write what was staged, in one durable write."""
        if self._writer is not None:
            self._writer.submit()

    async def recover(self) -> None:
        """After a failed write: make every log independent of the failed journal file, go on in a new one.

        Raises OSError: still failed.
        """
        if self._writer is not None:
            await self._writer.recover([r.log for r in self.replicas.values() if r.is_open])

    @property
    def failed_logs(self) -> dict[int, str]:
        """Logs whose sync failed: only a new process, which reads what is on the disk, may use them again."""
        return {p: str(r.log.failed) for p, r in self.replicas.items() if r.is_open and r.log.failed is not None}

    def _flush_segments(self) -> None:
        """Give the segments what has waited; it is durable by the journal already."""
        try:
            for replica in self.replicas.values():
                if replica.is_open and replica.log.has_pending:
                    replica.log.flush_segment()
        except OSError as error:
            self._on_failed(error)
        loop = asyncio.get_running_loop()
        self._flushing = loop.call_later(self._settings.flush_interval_ms / 1000, self._flush_segments)

    # -- replicas -----------------------------------------------------------------------------------------------------

    def create_replica(self, partition: int) -> StoredReplica:
        """A new, empty log with a new log id, and its promise file, all durable; ``add`` it then, on the event loop.

        Raises OSError, DamagedLogError.
        """
        if partition in self.damage:
            raise DamagedLogError(partition_directory(self._data_dir, partition), 0, self.damage[partition])
        directory = partition_directory(self._data_dir, partition)
        if partition in self._gone:
            self._disk.unlink(self._removed(partition))
            self._disk.fsync_dir(self._data_dir / REMOVED_NAME)
            self._gone.discard(partition)
        PartitionLog.create(self._disk, directory)
        self._refuse_foreign_log(partition, directory)
        promise = PromiseFile.create(self._disk, directory, new_log_id())
        replica = StoredReplica(self._disk, directory, partition, promise, self._open_journal)
        self.open_log(replica)
        return replica

    def _refuse_foreign_log(self, partition: int, directory: Path) -> None:
        """Records without a promise file have no log id: taking them over under a new one would invent a history."""
        for name in self._disk.listdir(directory):
            if name.endswith(".log"):
                descriptor = self._disk.open(directory / name)
                size = self._disk.size(descriptor)
                self._disk.close(descriptor)
                if size:
                    error = DamagedLogError(directory / name, 0, f"records, but no {PROMISE_NAME} that says whose")
                    self.mark_damaged(partition, error)
                    raise error

    def remove_replica(self, replica: StoredReplica) -> None:
        """Delete the log of a replica that nobody uses and ``replicas`` does not name any more; what a crash leaves is
        deleted at the next start. Blocks. Raises OSError.
        """
        replica.close_log()
        self._disk.mkdir(self._data_dir / REMOVED_NAME)
        replace_file(self._disk, self._removed(replica.partition), replica.log_id.encode())
        self._gone.add(replica.partition)
        self._delete(replica.directory)

    def forget(self, partition: int) -> None:
        """The journal keeps nothing for a log that was deleted. While nothing is written, on the event loop."""
        self._open_journal.forget(partition)

    def _removed(self, partition: int) -> Path:
        """Names the log that was deleted: what the journal still has of it is nothing that was lost."""
        return self._data_dir / REMOVED_NAME / str(partition)

    def _finish_removals(self) -> None:
        """What a crash left of logs that were to be deleted."""
        if REMOVED_NAME not in self._disk.listdir(self._data_dir):
            return
        self._gone = {int(name) for name in self._disk.listdir(self._data_dir / REMOVED_NAME) if name.isdigit()}
        for partition in self._gone:
            directory = partition_directory(self._data_dir, partition)
            if directory.name in self._disk.listdir(self._data_dir) and self._is_removed(partition, directory):
                self._delete(directory)

    def _is_removed(self, partition: int, directory: Path) -> bool:
        """And not a later one, which was created in its place."""
        if PROMISE_NAME not in self._disk.listdir(directory):
            return True
        try:
            log_id = PromiseFile.open(self._disk, directory).log_id
        except PromiseError:
            return False
        return log_id == read_whole_file(self._disk, self._removed(partition)).decode()

    def _delete(self, directory: Path) -> None:
        """The promise, which makes it a replica, goes last. What was found damaged is for people, and stays."""
        names = [name for name in self._disk.listdir(directory) if name not in (PROMISE_NAME, FOLDER)]
        for name in names:
            self._disk.unlink(directory / name)
        self._disk.fsync_dir(directory)
        if PROMISE_NAME in self._disk.listdir(directory):
            self._disk.unlink(directory / PROMISE_NAME)
            self._disk.fsync_dir(directory)

    def add(self, replica: StoredReplica) -> None:
        """From now on the replica is one of this pod's. On the event loop, which alone changes the dictionary."""
        self.replicas[replica.partition] = replica

    def open_log(self, replica: StoredReplica) -> None:
        """Recover the log if it is not open. Raises DamagedLogError, also when it did before; OSError."""
        damage = self.damage.get(replica.partition)
        if damage is not None:
            raise DamagedLogError(replica.directory, 0, damage)
        if replica.is_open:
            return
        try:
            with self._recovering:
                replica.open_log(self._log_settings)
        except DamagedLogError as error:
            self.mark_damaged(replica.partition, error)
            self._let_journal_go(replica, error)
            raise

    @staticmethod
    def _let_journal_go(replica: StoredReplica, error: DamagedLogError) -> None:
        """A log that stays closed must not keep the journal's files for ever."""
        try:
            replica.salvage(error)
        except OSError as failure:
            logger.error("journaled_batches_not_saved", partition=replica.partition, error=str(failure))

    def begin_copy(self, replica: StoredReplica) -> LogCopy:
        """An empty log beside that of ``replica``. Blocks. Raises OSError."""
        return replica.begin_copy(self._settings.segment_bytes)

    def swap(self, replica: StoredReplica, copy: LogCopy, horizon: int) -> None:
        """Put ``copy`` in the place of the log. Blocks; nobody may use the log meanwhile. Raises OSError,
        DamagedLogError.
        """
        with self._recovering:
            replica.swap_in(copy, horizon, self._log_settings)

    def begin_anew(self, replica: StoredReplica) -> None:
        """Replace the damaged log of ``replica`` by an empty one, which others will fill. Blocks. Raises OSError,
        DamagedLogError.
        """
        with self._recovering:
            reason = self.damage.get(replica.partition, "")
            replica.begin_anew(reason, self._log_settings)
        self.set_aside[replica.partition] = reason
        self.damage.pop(replica.partition, None)

    def salvage_unclaimed(self) -> None:
        """The same for logs of which only the journal knows: directory or promise file gone or unreadable. To be
        called when every replica's log was asked for. Raises OSError: the journal's files are kept."""
        with self._recovering:
            for partition, histories in self._open_journal.unclaimed().items():
                if partition in self.replicas:
                    continue
                if partition in self._gone:
                    self._open_journal.release(partition)
                    continue
                directory = partition_directory(self._data_dir, partition)
                if directory.name not in self._disk.listdir(self._data_dir):
                    directory = partition_directory(self._data_dir / LOST_NAME, partition)
                    self._disk.mkdir(directory)
                reason = self.damage.get(partition, f"{directory} is gone, or has no {PROMISE_NAME}")
                for history in histories:
                    folder = salvage(self._disk, directory, history, reason)
                    logger.warning("journaled_batches_saved", partition=partition, folder=str(folder))
                self._open_journal.release(partition)

    def mark_damaged(self, partition: int, error: DamagedLogError) -> None:
        """This replica must not serve any more; its files stay as they are."""
        logger.error("log_damaged", partition=partition, error=str(error))
        self.damage[partition] = str(error)
