"""Logs that left their set and are deleted from the data directory.

`<data>/removed/<p>` names the log of partition p that was deleted, so that what the journal still has of it
does not count as lost. A deletion that a crash cuts short is finished at the next start.
"""

from __future__ import annotations

from pathlib import Path

from muster_coordinator.log.disk import Disk, read_whole_file, replace_file
from muster_coordinator.log.segments.partition_log import partition_directory
from muster_coordinator.log.segments.salvage import FOLDER
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseError, PromiseFile
from muster_coordinator.replica.stored import StoredReplica

FOLDER_NAME = "removed"


class RemovedLogs:
    """All methods but `in` block and raise OSError."""

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._partitions: set[int] = set()

    def __contains__(self, partition: int) -> bool:
        """The log of this partition was deleted, and no other one was created."""
        return partition in self._partitions

    def finish(self) -> None:
        """Delete what a crash left of logs that were to be deleted."""
        if FOLDER_NAME not in self._disk.listdir(self._data_dir):
            return
        self._partitions = {int(name) for name in self._disk.listdir(self._data_dir / FOLDER_NAME) if name.isdigit()}
        for partition in self._partitions:
            directory = partition_directory(self._data_dir, partition)
            if directory.name in self._disk.listdir(self._data_dir) and self._is_removed(partition, directory):
                self._delete(directory)

    def remove(self, replica: StoredReplica) -> None:
        """Delete the log of a replica that is closed and not used any more; the next start goes on after a crash."""
        self._disk.mkdir(self._data_dir / FOLDER_NAME)
        replace_file(self._disk, self._note(replica.partition), replica.log_id.encode())
        self._partitions.add(replica.partition)
        self._delete(replica.directory)

    def forget(self, partition: int) -> None:
        """Another log is about to be created for this partition."""
        if partition in self._partitions:
            self._disk.unlink(self._note(partition))
            self._disk.fsync_dir(self._data_dir / FOLDER_NAME)
            self._partitions.discard(partition)

    def _note(self, partition: int) -> Path:
        return self._data_dir / FOLDER_NAME / str(partition)

    def _is_removed(self, partition: int, directory: Path) -> bool:
        """True if it is this log, and not a later one that was created in its place."""
        if PROMISE_NAME not in self._disk.listdir(directory):
            return True
        try:
            log_id = PromiseFile.open(self._disk, directory).log_id
        except PromiseError:
            return False
        return log_id == read_whole_file(self._disk, self._note(partition)).decode()

    def _delete(self, directory: Path) -> None:
        """The promise, which makes it a replica, goes last. Files that were saved from damage stay for people."""
        names = [name for name in self._disk.listdir(directory) if name not in (PROMISE_NAME, FOLDER)]
        for name in names:
            self._disk.unlink(directory / name)
        self._disk.fsync_dir(directory)
        if PROMISE_NAME in self._disk.listdir(directory):
            self._disk.unlink(directory / PROMISE_NAME)
            self._disk.fsync_dir(directory)
