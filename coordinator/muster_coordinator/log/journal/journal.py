"""The pod's journal: the one file that a turn's batches of all partitions are written to, and the durability point.

Life of a batch: `stage` (event loop) -> `take` (event loop) -> `write` (one thread) -> durable. Segments get the
same bytes lazily. Files are filled with zeros beforehand, so that a write in place needs no metadata; a full file is
kept until every log with batches in it was synced, then it is used again. Byte layout: `journal_format`.

A file in which a write failed is never written again: what of that write is on the disk is unknown. Writing goes on in
a new file only after `go_on`, which the caller may call once all segments were synced.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk, create_file, read_fully, write_fully, write_fully_durably
from muster_coordinator.log.journal.format import (
    APPEND,
    END,
    ENTRY,
    FRAME_BYTES,
    START,
    TRUNCATE,
    FrameScan,
    encode_frame_head,
    entries_of,
    file_mark,
    hash_log_id,
    scan_frames,
)
from muster_coordinator.log.journal.history import History, HistoryBuilder

logger = structlog.get_logger(__name__)

SUFFIX = ".journal"
SPARE_NAME = "spare"


@dataclass(frozen=True)
class JournalSettings:
    file_bytes: int = 32 << 20
    """Bytes. A file is filled with zeros when it is made; a pod keeps two or three."""
    durable: bool = True
    """False: a write is done when the operating system has it."""


@dataclass(frozen=True)
class Staged:
    """The content of one write. `ends`: partition -> log end that is durable after it."""

    parts: list[bytes]
    ends: dict[int, int]


@dataclass
class JournalFile:
    """A file that is not written any more; `partitions` have batches in it."""

    path: Path
    partitions: set[int]


class Journal:
    """`stage`, `take` and `recovered` belong to the event loop; `write`, `go_on` and
    `prepare_spare` to one thread at a time. `retire` may run in another one. `end` and `close`: no other
    method runs any more.
    """

    def __init__(self, disk: Disk, directory: Path, settings: JournalSettings, boot_id: str) -> None:
        """Use `open`."""
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._boot_id = boot_id
        self._history = HistoryBuilder()
        self._hashes: dict[int, int] = {}  # partition -> log id hash
        self.staged: list[bytes] = []
        """The bytes that `take` gives next, for a look at whether there is anything."""
        self._staged_ends: dict[int, int] = {}
        self._durable_ends: dict[tuple[int, int], int] = {}
        self._written_ends: dict[int, int] = {}  # partition -> end; not in `_durable_ends` yet
        self._closed: list[JournalFile] = []
        self._file: Path | None = None  # the current one
        self._file_partitions: set[int] = set()
        self._descriptor = -1
        self._mark = b""
        self._sequence = 0
        self._position = 0
        self._write_number = 0
        self._has_spare = False
        self._files_lock = threading.Lock()  # around the making and renaming of files
        self._announced = False  # the START entry of this run, or of this file, was written
        self.failed: OSError | None = None

    @classmethod
    def open(cls, disk: Disk, directory: Path, settings: JournalSettings, boot_id: str) -> Journal:
        """Read what earlier runs left, make it durable, and go on after it. Raises OSError."""
        journal = cls(disk, directory, settings, boot_id)
        disk.mkdir(directory)
        disk.fsync_dir(directory.parent)
        disk.fsync_dir(directory)  # a process that was killed may have left the names of files unsynced
        names = disk.listdir(directory)
        journal._has_spare = SPARE_NAME in names
        sequences = sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))
        for sequence in sequences:
            journal._read_file(sequence, is_first=sequence == sequences[0], is_last=sequence == sequences[-1])
        journal._durable_ends = dict(journal._history.known_ends)
        if journal._file is None:
            journal._start_new_file()
        return journal

    def recovered(self, partition: int, log_id: str) -> History:
        """The history of this log from earlier runs; to be asked once, before the first `stage` for the partition."""
        log_hash = hash_log_id(log_id)
        self._hashes[partition] = log_hash
        self._written_ends.pop(partition, None)
        return self._history.take(partition, log_hash, self._boot_id)

    def cache_was_lost(self) -> None:
        """Notes that under flush os the power was lost: what `recovered` gives from now on says so."""
        self._history.cache_was_lost()

    def unclaimed(self, waiting: Set[int]) -> dict[int, list[History]]:
        """partition -> what earlier runs wrote for logs that `recovered` was not asked for. The journal forgets it, but
        for the partitions in `waiting`, for which it may still be asked.
        """
        return self._history.take_rest(self._boot_id, waiting)

    def stage(self, partition: int, base_offset: int, end_offset: int, batch: bytes) -> None:
        """Put a batch into the next write. KeyError if `recovered` was not asked."""
        parts = self.staged
        parts.append(ENTRY.pack(APPEND, partition, self._hashes[partition], base_offset, end_offset, len(batch)))
        parts.append(batch)
        self._staged_ends[partition] = end_offset

    def stage_gap(self, partition: int, base_offset: int, end_offset: int) -> None:
        """Put the news that a log goes on at `end_offset`, without records in between, into the next write."""
        self.staged.append(ENTRY.pack(APPEND, partition, self._hashes[partition], base_offset, end_offset, 0))
        self._staged_ends[partition] = end_offset

    def stage_truncation(self, partition: int, end_offset: int) -> None:
        """Put the news that a log was cut to `end_offset` into the next write."""
        self.staged.append(ENTRY.pack(TRUNCATE, partition, self._hashes[partition], 0, end_offset, 0))
        self._staged_ends[partition] = end_offset

    def take(self) -> Staged | None:
        """Everything staged since the last call; None if nothing was."""
        if not self.staged:
            return None
        staged = Staged(self.staged, self._staged_ends)
        self.staged = []
        self._staged_ends = {}
        return staged

    def is_simple(self, staged: Staged, bytes_max: int) -> bool:
        """`write` of it would be one system call, of at most `bytes_max` of payload. While nothing is written."""
        size = sum(map(len, staged.parts))
        return self._announced and size <= bytes_max and self._has_room(size)

    @property
    def wants_spare(self) -> bool:
        """The current file is more than half full and there is none to follow: time for `prepare_spare`."""
        return not self._has_spare and self._position * 2 > self._settings.file_bytes

    @property
    def wants_housekeeping(self) -> bool:
        """There is a file to give back, or one to prepare."""
        return bool(self._closed) or self.wants_spare

    def write(self, staged: Staged) -> None:
        """Write `staged` as one frame. When this returns it is durable. After OSError the journal has `failed`."""
        if self.failed is not None:
            raise OSError(self.failed.errno, f"the journal failed before: {self.failed}")
        try:
            payload = b"".join(staged.parts)
            if not self._has_room(len(payload)) and self._position > 0:
                self._close_file()
                self._open_file(self._sequence + 1)
            if not self._announced:
                payload = self._announcement() + payload
            self._write_frame(payload)
        except OSError as exc:
            self.failed = exc
            raise
        self._announced = True
        self._file_partitions.update(staged.ends)
        self._written_ends.update(staged.ends)

    def go_on(self, ends: Mapping[int, int]) -> None:
        """Goes on after a failure, in a new file, which says durably where the logs end. `ends`: partition -> end of a
        log that was synced.

        What the failed write carried is in no journal file for certain, only in the segments: a later entry would stand
        behind a gap, and a start would take it for what an earlier cut removed. Raises OSError: the journal has
        `failed`.
        """
        try:
            self._start_new_file()
            self._written_ends.update(ends)
            self._announce()
        except OSError as exc:
            self.failed = exc
            raise
        self.failed = None

    def _start_new_file(self) -> None:
        """Leave the current file for good and begin the next one."""
        if self._file is not None:
            self._close_file()
        self._open_file(self._sequence + 1)

    def prepare_spare(self) -> None:
        """Have a file of zeros ready, so that changing files costs a rename. Does nothing if one is there."""
        with self._files_lock:
            self._prepare_spare(gently=True)

    def _prepare_spare(self, *, gently: bool) -> None:
        if not self._has_spare:
            making = self._directory / f"{SPARE_NAME}.new"
            descriptor = create_file(self._disk, making)
            self._disk.fill_with_zeros(descriptor, self._settings.file_bytes, gently=gently)
            self._disk.close(descriptor)
            self._disk.rename(making, self._directory / SPARE_NAME)
            self._has_spare = True

    def closed_files(self) -> list[JournalFile]:
        """Oldest first. They go by `retire`, in this order: a log's entries in the journal stay without gaps."""
        return list(self._closed)

    def retire(self, file: JournalFile) -> None:
        """Give up the oldest closed file, all logs of which were synced since it was closed: to be the spare, or to
        go.
        """
        if self._closed[0] is not file:
            raise AssertionError(f"{file.path} is not the oldest journal file")
        with self._files_lock:
            if self._has_spare:
                self._disk.unlink(file.path)
            else:
                self._disk.rename(file.path, self._directory / SPARE_NAME)
                self._has_spare = True
            self._closed.pop(0)
            self._disk.fsync_dir(self._directory)

    def release(self, partition: int) -> None:
        """No file is kept for this log any more: it cannot be opened, and its batches are kept elsewhere. Its end is
        still announced.
        """
        for file in self._closed:
            file.partitions.discard(partition)
        self._file_partitions.discard(partition)

    def forget(self, partition: int) -> None:
        """A log was deleted: no file is kept for it, and the marks of later files do not name it any more."""
        self.release(partition)
        self._written_ends.pop(partition, None)
        log_hash = self._hashes.pop(partition, None)
        if log_hash is not None:
            self._durable_ends.pop((partition, log_hash), None)

    def end(self, synced: Set[int]) -> None:
        """Ends in good order, before `close`: gives up every file with batches of none but these partitions, whose logs
        are synced as they are now. The next start then finds where the logs end, and nothing else to read.

        Nothing is given up without a spare file to write that to: making one takes too long for an end. Raises OSError.
        """
        if self.failed is not None:
            return
        if not self._announced:  # the files that go may be the only ones that say where the logs end
            self._announce()
        while self._closed and self._closed[0].partitions <= synced:
            self.retire(self._closed[0])
        if self._closed or not self._has_spare or not self._file_partitions or not self._file_partitions <= synced:
            return
        self._start_new_file()
        self._announce()
        self.retire(self._closed[0])

    def _announce(self) -> None:
        self._write_frame(self._announcement())
        self._announced = True

    def close(self, *, sync: bool = False) -> None:
        """`sync`: what was written may not be durable yet. Raises OSError."""
        if self._descriptor >= 0:
            if sync:
                self._disk.fdatasync(self._descriptor)
            self._disk.close(self._descriptor)
            self._descriptor = -1

    # --- files -------------------------------------------------------------------------------------------------------

    def _path(self, sequence: int) -> Path:
        return self._directory / f"{sequence:020d}{SUFFIX}"

    def _close_file(self) -> None:
        assert self._file is not None
        self._disk.close(self._descriptor)
        self._descriptor = -1
        self._closed.append(JournalFile(self._file, self._file_partitions))
        self._file = None
        self._file_partitions = set()

    def _open_file(self, sequence: int) -> None:
        path = self._path(sequence)
        with self._files_lock:
            self._prepare_spare(gently=False)  # a write waits for it
            self._disk.rename(self._directory / SPARE_NAME, path)
            self._has_spare = False
            self._disk.fsync_dir(self._directory)
        self._descriptor = self._open_to_write(path)
        self._file, self._sequence, self._position = path, sequence, 0
        self._mark = file_mark(sequence)
        self._announced = False

    def _open_to_write(self, path: Path) -> int:
        return self._disk.open(path, direct=self._settings.durable)

    def _announcement(self) -> bytes:
        """START and the end of every log that the journal knows."""
        boot_id = self._boot_id.encode()
        parts = [ENTRY.pack(START, -1, 0, self._write_number, 0, len(boot_id)), boot_id]
        for partition, end_offset in list(self._written_ends.items()):
            log_hash = self._hashes.get(partition)
            if log_hash is not None:  # else forgotten meanwhile
                self._durable_ends[(partition, log_hash)] = end_offset
        self._written_ends.clear()
        for (partition, log_hash), end_offset in list(self._durable_ends.items()):
            parts.append(ENTRY.pack(END, partition, log_hash, 0, end_offset, 0))
        return b"".join(parts)

    def _has_room(self, payload_bytes: int) -> bool:
        """True if the current file has room for a frame of this size."""
        return self._position + FRAME_BYTES + payload_bytes <= self._settings.file_bytes

    def _write_frame(self, payload: bytes) -> None:
        frame = encode_frame_head(self._mark, self._write_number + 1, payload) + payload
        write = write_fully_durably if self._settings.durable else write_fully
        write(self._disk, self._descriptor, frame, self._position)
        self._position += len(frame)
        self._write_number += 1

    # --- start-up ----------------------------------------------------------------------------------------------------

    def _read_file(self, sequence: int, *, is_first: bool, is_last: bool) -> None:
        path = self._path(sequence)
        descriptor = self._disk.open(path)
        data = read_fully(self._disk, descriptor, self._disk.size(descriptor), 0)
        scan = scan_frames(data, sequence)
        partitions = self._take_over(scan, path, is_first=is_first)
        self._disk.close(descriptor)
        self._sequence = sequence
        if not is_last or len(data) < self._settings.file_bytes:
            # shorter than it should be: it was being made when the pod died, or settings changed
            self._closed.append(JournalFile(path, partitions))
            return
        self._file, self._file_partitions = path, partitions
        self._descriptor = self._open_to_write(path)
        self._mark = file_mark(sequence)
        self._position = scan.end
        if scan.frames:
            # It may be in the page cache only, if its write failed and the pod died then.
            last = scan.frames[-1].position
            write_fully_durably(self._disk, self._descriptor, data[last : scan.end], last)
        if scan.holes:
            self._leave_damaged_file()

    def _leave_damaged_file(self) -> None:
        """Go on in a new file, so that the damaged one goes once its logs are synced: until then each start doubts all
        logs. On a disk without room it stays in use.
        """
        try:
            self.prepare_spare()
        except OSError as exc:
            logger.warning("damaged_journal_kept", file=str(self._file), error=str(exc))
            return
        self._start_new_file()

    def _take_over(self, scan: FrameScan, path: Path, *, is_first: bool) -> set[int]:
        """Add a file's entries to the history; returns the partitions with batches in it."""
        partitions: set[int] = set()
        boot_id = ""
        holes = dict(scan.holes)
        for index, frame in enumerate(scan.frames):
            if index in holes:
                self._report_hole(path, holes[index])
            for entry in entries_of(frame):
                if entry.kind == START:
                    boot_id = entry.data.decode()
                    if entry.base_offset > self._write_number and not is_first:
                        self._report_hole(path, frame.position)
                    self._history.all_logs_follow()
                else:
                    self._history.add(entry, path, boot_id)
                    if entry.kind == APPEND:
                        partitions.add(entry.partition)
            self._write_number = frame.write_number
        return partitions

    def _report_hole(self, path: Path, position: int) -> None:
        logger.error("journal_damaged", file=str(path), position=position)
        self._history.doubt_all(f"the journal is damaged: {path} at byte {position}")
