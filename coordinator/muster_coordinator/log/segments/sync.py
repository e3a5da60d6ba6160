"""Syncs a log's files in another thread, and keeps replaced segment files open while they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster_coordinator.log.disk import Disk, replace_file
from muster_coordinator.log.segments.cleaned import CleanedTo
from muster_coordinator.log.segments.copy import lower_mark
from muster_coordinator.log.segments.segment import Segment
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME


class Holds:
    """Replaced segments stay open while any `with` block runs. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._replaced: list[Segment] = []

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._count -= 1
            self._close_unused()

    def retire(self, segments: list[Segment]) -> None:
        with self._lock:
            self._replaced += segments
            self._close_unused()

    def close(self) -> None:
        with self._lock:
            self._count = 0
            self._close_unused()

    def _close_unused(self) -> None:
        while self._replaced and not self._count:
            self._replaced.pop().close()


class LogFiles:
    """The state that the syncs of one log share.

    `failed`: a sync failed, so the files are not trusted any more. `unnamed`: the epochs could not be written
    (there is no room for a new file, say), which a later sync has to do.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.disk = disk
        self.directory = directory
        self.failed: OSError | None = None
        self.unnamed = False
        self.holds = Holds()
        self._lock = threading.Lock()
        self._checkpoint_number = 0  # of the newest checkpoint that was written
        self._tasks = 0

    def sync_task(self, segments: list[Segment], checkpoint: bytes | None, names: bool) -> SyncTask:
        self._tasks += 1
        return SyncTask(self, self._tasks, segments, checkpoint, names)

    def cut(self, end_offset: int, shortened: Segment | None, dropped: list[Path], cleaned: CleanedTo | None) -> None:
        """Make a cut of the log at `end_offset` durable: the last segment that goes is the first one. Raises OSError:
        `failed`.
        """
        with self._lock, self._no_doubt():
            if cleaned is not None:
                cleaned.write(self.disk, self.directory)
            lower_mark(self.disk, self.directory, end_offset)
            for path in reversed(dropped):
                self.disk.unlink(path)
            self.disk.fsync_dir(self.directory)
            if shortened is not None:
                shortened.cut_file(shortened.size)

    def sync(self, number: int, segments: list[Segment], checkpoint: bytes | None, names: bool) -> None:
        """One at a time; a checkpoint never replaces a newer one. Raises OSError: `failed` or `unnamed` is set
        then.
        """
        with self._lock:
            with self._no_doubt():
                for segment in segments:
                    self.disk.fdatasync(segment.descriptor)
            if checkpoint is not None and number > self._checkpoint_number:
                try:
                    replace_file(self.disk, self.directory / CHECKPOINT_NAME, checkpoint)
                except OSError:
                    self.unnamed = True  # the old file stands, or the new one: both are true of this log
                    raise
                self._checkpoint_number = number
            if names or checkpoint is not None:
                with self._no_doubt():
                    self.disk.fsync_dir(self.directory)
                self.unnamed = False

    @contextmanager
    def _no_doubt(self) -> Iterator[None]:
        """After an OSError in this block it is not known what is on the disk: `failed` is set."""
        try:
            yield
        except OSError as exc:
            self.failed = exc
            raise


class SyncTask:
    """Makes a log's files durable as of `begin_sync`; `run` is to be called in any thread, once."""

    def __init__(
        self, files: LogFiles, number: int, segments: list[Segment], checkpoint: bytes | None, names: bool
    ) -> None:
        self._files = files
        self._work = (number, segments, checkpoint, names)
        files.holds.__enter__()  # until it has run: a segment may be replaced before

    def run(self) -> None:
        """Raises OSError; see `LogFiles.sync`."""
        try:
            self._files.sync(*self._work)
        finally:
            self._files.holds.__exit__()


class WriteBack:
    """Has the operating system start writing what some segments got, each (segment, position, size in bytes).

    Nothing becomes durable by that. A later sync of these files, or of the whole file system, has less to do, and
    other writes wait less for it. Call `run` once, in any thread.
    """

    def __init__(self, files: LogFiles, grown: list[tuple[Segment, int, int]]) -> None:
        self._files = files
        self._grown = grown
        files.holds.__enter__()  # until it has run: a segment may be replaced before

    def run(self) -> None:
        try:
            for segment, position, size in self._grown:
                self._files.disk.begin_write_back(segment.descriptor, position, size)
        finally:
            self._files.holds.__exit__()
