"""A pod's data directory: the journal, the replicas, their logs.

    <data>/journal/                    one journal for all partitions (ADR 1)
    <data>/__consumer_offsets-<p>/     segments in Kafka's format, leader-epoch-checkpoint, muster.promise
    <data>/lost/                       what the journal had of logs whose directory is gone
    <data>/removed/                    a file for each partition whose replica here left its set and was deleted

Most methods block: the pod calls them in its threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.flush_state import FlushState
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.segments.copy import LogCopy
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.log.segments.salvage import salvage
from muster_coordinator.log.writer import Pace
from muster_coordinator.partition_numbers import number_of_directory
from muster_coordinator.pod.removed_logs import RemovedLogs
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.replica.log_id import new_log_id
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseError, PromiseFile
from muster_coordinator.replica.stored import StoredReplica

logger = structlog.get_logger(__name__)

LOST_NAME = "lost"
WRITE_AT_END_S = 5.0
"""Longest time in seconds that an orderly end waits for writes of promises, and then of logs: a pod has its grace
period only. What is not synced by then stays in the journal."""
ROOM_BYTES = 1 << 20
"""A disk with less room than this counts as full: who began to lead there would soon have to give up."""


@dataclass(frozen=True)
class StorageSettings:
    """Sizes in bytes. `boot_id` identifies this start of the machine, whose page cache outlives a process."""

    segment_bytes: int
    journal_bytes: int
    flush_interval_ms: int
    boot_id: str
    flush_os: bool = False
    """Leave it to the operating system when what was written reaches the disk, as Kafka does by default. Promises are
    synced all the same."""


class DataDirectory:
    """Implements `replica.ports.Storage`. `replicas`: by partition; only the event loop changes it after `open`.
    `lost_power`: under flush os the power was lost since the last write, so logs may lack what was acked.
    """

    def __init__(
        self,
        data_dir: Path,
        disk: Disk,
        settings: StorageSettings,
        health: StorageHealth,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`random_bytes`: for new log ids."""
        self.replicas: dict[int, StoredReplica] = {}
        self.lost_power = False
        self.pace = Pace()
        self._data_dir = data_dir
        self._disk = disk
        self._settings = settings
        self._log_settings = LogSettings(segment_bytes=settings.segment_bytes)
        self._health = health
        self._random_bytes = random_bytes
        self._removed = RemovedLogs(disk, data_dir)
        self._recovering = threading.Lock()  # the journal's history is handed out to one log at a time
        self._journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            raise AssertionError("the data directory is not open")
        return self._journal

    def why_full(self) -> str:
        """The reason why no replica here should begin to lead, "" if there is room. Does not wait for the disk."""
        try:
            free = self._disk.free_bytes(self._data_dir)
        except OSError as error:
            return f"the room in {self._data_dir} is not known: {error}"
        return f"{free} bytes are free in {self._data_dir}, less than {ROOM_BYTES}" if free < ROOM_BYTES else ""

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
        self._flush_state = FlushState(self._disk, self._data_dir, self._settings.boot_id)
        self.lost_power = self._flush_state.lost_power
        if self.lost_power:
            self._journal.cache_was_lost()
        if self._settings.flush_os and not self.lost_power:
            self._flush_state.running()
        self._removed.finish()
        for name in sorted(self._disk.listdir(self._data_dir)):
            number = number_of_directory(name)
            if number is not None:
                self._find_replica(number, self._data_dir / name)

    def _find_replica(self, partition: int, directory: Path) -> None:
        """A directory without a promise file is no replica, because it has no log id: it is left alone."""
        if partition in self._removed and not self._disk.listdir(directory):
            return
        if PROMISE_NAME not in self._disk.listdir(directory):
            logger.warning("directory_without_promise", directory=str(directory))
            return
        try:
            promise = PromiseFile.open(self._disk, directory)
        except PromiseError as error:
            logger.error("promise_unreadable", directory=str(directory), error=str(error))
            self._health.damage[partition] = str(error)
            return
        self.replicas[partition] = StoredReplica(self._disk, directory, partition, promise, self.journal)
        if promise.stopped:
            self._health.replica_stopped(partition, promise.stopped)

    def power_loss_is_noted(self) -> None:
        """Every replica here that may lack what the power loss took has stored that. Raises OSError."""
        if self._settings.flush_os:
            self._flush_state.running()
        self.lost_power = False

    async def close(self) -> None:
        """Make everything durable and close the files, after the journal's writer has ended: the next start need not
        read the journal. A log that fails is left as it is: the next process recovers it from disk and journal.
        Raises OSError: the journal failed.
        """
        failed, synced = await self._close_logs()
        try:
            await asyncio.to_thread(self.journal.end, synced)
        except OSError as error:
            logger.warning("journal_kept", error=str(error))  # the next start reads it
        await asyncio.to_thread(self.journal.close, sync=self._flush_state.needs_end)
        if not failed:
            await asyncio.to_thread(self._flush_state.ended)

    async def _close_logs(self) -> tuple[set[int], set[int]]:
        """Returns the partitions whose logs failed, and those whose logs were synced."""
        time = asyncio.get_running_loop().time
        until, synced = time() + WRITE_AT_END_S, set[int]()
        opened = {partition: replica for partition, replica in self.replicas.items() if replica.is_open}
        failed = {partition for partition, replica in opened.items() if replica.log.failed is not None}
        for partition, replica in opened.items():
            if partition in failed:
                continue
            sync = self._flush_state.needs_end or time() < until
            try:
                await asyncio.to_thread(replica.close_log, sync=sync)
            except OSError as error:
                failed.add(partition)
                logger.error("log_not_synced", partition=partition, error=str(error))
                continue
            if sync:
                synced.add(partition)
        return failed, synced

    # -- replicas -----------------------------------------------------------------------------------------------------

    def create_replica(self, partition: int) -> StoredReplica:
        """Returns a new, empty log with a new log id, and its promise file, all durable. Put it into `replicas` then,
        on the event loop. Raises OSError, DamagedLogError.
        """
        directory = partition_directory(self._data_dir, partition)
        if partition in self._health.damage:
            raise DamagedLogError(directory, 0, self._health.damage[partition])
        self._removed.forget(partition)
        PartitionLog.create(self._disk, directory)
        self._refuse_foreign_log(partition, directory)
        promise = PromiseFile.create(self._disk, directory, new_log_id(self._random_bytes))
        replica = StoredReplica(self._disk, directory, partition, promise, self.journal)
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
                    self._health.log_damaged(partition, error)
                    raise error

    def remove_replica(self, replica: StoredReplica) -> None:
        """Delete the log of a replica that `replicas` does not name any more. Raises OSError."""
        replica.close_log()
        self._removed.remove(replica)

    # -- logs ---------------------------------------------------------------------------------------------------------

    def open_log(self, replica: StoredReplica) -> None:
        """Recover the log if it is not open. Raises DamagedLogError, also when it did before; OSError."""
        damage = self._health.damage.get(replica.partition)
        if damage is not None:
            raise DamagedLogError(replica.directory, 0, damage)
        if replica.is_open:
            return
        try:
            with self._recovering:
                replica.open_log(self._log_settings)
        except DamagedLogError as error:
            self._health.log_damaged(replica.partition, error)
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
        return replica.begin_copy(self._settings.segment_bytes)

    def swap(self, replica: StoredReplica, copy: LogCopy, horizon: int) -> None:
        with self._recovering:
            replica.swap_in(copy, horizon, self._log_settings)

    def begin_anew(self, replica: StoredReplica) -> None:
        """Replace the damaged log of `replica` by an empty one, which another replica fills. Raises OSError,
        DamagedLogError.
        """
        with self._recovering:
            replica.begin_anew(self._health.damage.get(replica.partition, ""), self._log_settings)
        self._health.log_began_anew(replica.partition)

    def salvage_unclaimed(self) -> None:
        """Save what the journal has of logs that no replica here claims: directory or promise file are gone or
        unreadable. To be called when every replica's log was opened, or was tried; one that the disk refused needs what
        the journal has of it when it is tried again. Raises OSError: the journal's files are kept.
        """
        with self._recovering:
            closed = {partition for partition, replica in self.replicas.items() if not replica.is_open}
            for partition, histories in self.journal.unclaimed(closed - self._health.damage.keys()).items():
                if partition in self.replicas:
                    continue
                if partition in self._removed:
                    self.journal.release(partition)
                    continue
                directory = partition_directory(self._data_dir, partition)
                if directory.name not in self._disk.listdir(self._data_dir):
                    directory = partition_directory(self._data_dir / LOST_NAME, partition)
                    self._disk.mkdir(directory)
                reason = self._health.damage.get(partition, f"{directory} is gone, or has no {PROMISE_NAME}")
                for history in histories:
                    folder = salvage(self._disk, directory, history, reason)
                    logger.warning("journaled_batches_saved", partition=partition, folder=str(folder))
                self.journal.release(partition)
