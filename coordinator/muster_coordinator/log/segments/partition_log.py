"""One partition's log: segments in Kafka's format, written behind the journal.

Directory `<topic>-<partition>`: `<20 digits>.log` and `leader-epoch-checkpoint`; files of others
(Kafka's indexes, `partition.metadata`, our `muster.promise`) are left alone. Batches are durable by the journal,
and only then does the segment get them: so the journal can mend whatever a crash leaves of the unsynced part of a
segment. Segments are synced before a journal file goes. Source: UnifiedLog, LocalLog; recovery rules: `recovery`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk, read_whole_file
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.cleaned import CleanedTo, finish_cleaning
from muster_coordinator.log.segments.copy import copied_to, finish_swap, lower_mark
from muster_coordinator.log.segments.reading import RangeReader, batches_of, read_batches, segment_index
from muster_coordinator.log.segments.recovery import Found, Plan, cut_log, plan, rewrite_journaled, scan_log
from muster_coordinator.log.segments.salvage import FOLDER, refusal
from muster_coordinator.log.segments.segment import Segment, segment_name, segment_offsets
from muster_coordinator.log.segments.sync import Holds, LogFiles, SyncTask, WriteBack
from muster_coordinator.partition_numbers import partition_name
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME, EpochCache
from muster_coordinator.tuning.descriptors import NO_DESCRIPTOR

logger = structlog.get_logger(__name__)


def partition_directory(data: Path, partition: int) -> Path:
    """Kafka's name for it."""
    return data / partition_name(partition)


@dataclass(frozen=True)
class LogSettings:
    segment_bytes: int = 100 << 20
    """offsets.topic.segment.bytes: a segment is closed before a batch that would make it larger."""
    buffer_bytes: int = 64 << 10
    """Bytes that wait in memory before the segment file gets them."""
    read_chunk_bytes: int = 1 << 20
    """Bytes that one step of `read_batches` reads."""


class PartitionLog:
    """`end_offset`: offset of the next record. `start_offset`: of the first segment. One thread at a time, but for
    `SyncTask.run` and `batches_of` a closed segment.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        partition: int,
        settings: LogSettings,
        segments: list[Segment],
        end_offset: int,
    ) -> None:
        """Use `create` and `open`."""
        self.directory = directory
        self.partition = partition
        self.end_offset = end_offset
        self.journaled_end = end_offset
        """The journal has everything below this offset durably; `log.writer` sets it. Segments get no
        more than that.
        """
        self.epochs = EpochCache()
        self._disk = disk
        self._files = LogFiles(disk, directory)
        self._settings = settings
        self._segments = segments
        self._segment = segments[-1]
        self._tail_end = end_offset  # what the files will say: end of the last batch, or name of the last segment
        self._last_epoch = -1
        self._pending_bytes = 0  # of all segments
        self._flush_at = settings.buffer_bytes  # pending bytes at which the next append flushes
        self._checkpoint_dirty = False
        self._names_dirty = False
        self.cleaned_to = CleanedTo()
        self.cleanings = 0
        """Changes when segments were replaced, or are about to be and tombstones below the horizon to go with them."""
        self.cannot_clean = ""  # why this process must not clean the log any more

    # --- opening -----------------------------------------------------------------------------------------------------

    @staticmethod
    def create(disk: Disk, directory: Path) -> None:
        """Make the directory and an empty first segment, durably. Does nothing to a log that is there."""
        disk.mkdir(directory)
        if segment_offsets(disk.listdir(directory)):
            return
        disk.close(disk.open(directory / segment_name(0), create=True))
        disk.fsync_dir(directory)
        disk.fsync_dir(directory.parent)

    @classmethod
    def open(cls, disk: Disk, directory: Path, partition: int, settings: LogSettings, history: History) -> PartitionLog:
        """Recover the log. Raises DamagedLogError (nothing was changed then), OSError."""
        reason = refusal(disk, directory)
        if reason:
            raise DamagedLogError(directory / FOLDER, 0, f"found damaged before, and not cleared since: {reason}")
        finish_swap(disk, directory)
        finish_cleaning(disk, directory)
        cleaned = CleanedTo.read(disk, directory)
        copied = copied_to(disk, directory)
        history = history.after(cleaned.end_offset)
        offsets = segment_offsets(disk.listdir(directory))
        if not offsets:
            raise DamagedLogError(directory, 0, "no segment file")
        segments = [Segment.open(disk, directory, offset) for offset in offsets]
        try:
            found = scan_log(disk, segments, history, max(cleaned.end_offset, copied))
            decision = plan(found, history)
            if decision.end_offset < cleaned.end_offset:
                reason = f"log ends at offset {decision.end_offset}, it was cleaned up to {cleaned.end_offset}"
                raise DamagedLogError(found.file, 0, reason)
            if decision.keep_to < copied:
                lower_mark(disk, directory, decision.keep_to)
            cut_log(disk, directory, segments, found, decision)
            rewrite_journaled(segments, found, decision, history)
            log = cls(disk, directory, partition, settings, segments, decision.keep_to)
            log.cleaned_to = cleaned
            log._names_dirty = True  # a run before this one may have left all that unsynced
            for segment in segments[found.first_index :]:
                segment.dirty = True
            log._restore(found, decision, history)
        except BaseException:
            for segment in segments:
                segment.close()
            raise
        return log

    def _restore(self, found: Found, decision: Plan, history: History) -> None:
        self._load_epochs(found, decision)
        self.journaled_end = decision.end_offset
        for batch in decision.append:
            if not batch.data:
                self.skip_to(batch.end_offset)
                continue
            self.append(
                batch.data, batch.base_offset, batch.end_offset, int.from_bytes(batch.data[12:16], "big", signed=True)
            )
        if decision.append:
            logger.info("log_restored_from_journal", directory=str(self.directory), batches=len(decision.append))
        if self.end_offset > max(history.known_end, self.start_offset):
            self.sync()  # the tail may be in the page cache only, and no journal file has it

    def _load_epochs(self, found: Found, decision: Plan) -> None:
        path = self.directory / CHECKPOINT_NAME
        if CHECKPOINT_NAME in self._disk.listdir(self.directory):
            try:
                self.epochs = EpochCache.decode(read_whole_file(self._disk, path))
            except ValueError as exc:
                raise DamagedLogError(path, 0, f"unreadable: {exc}") from exc
        # The file is written lazily: it may lack the last epochs, or know more than the log that was cut.
        self._checkpoint_dirty = self.epochs.truncate_to(found.start_offset)
        for info in found.batches:
            if info.base_offset < decision.keep_to:
                self._note_epoch(info.leader_epoch, info.base_offset)
        self._last_epoch = self.epochs.last_epoch

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def failed(self) -> OSError | None:
        """A sync failed: the files are not trusted any more."""
        return self._files.failed

    @property
    def start_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size + segment.pending_bytes for segment in self._segments)

    def bytes_from(self, offset: int) -> int:
        """Bytes of the batches from `offset` on, and perhaps a few more in front."""
        index = segment_index(self._segments, offset)
        later = self._segments[index:]
        size = sum(segment.size + segment.pending_bytes for segment in later)
        return size - later[0].position_near(offset) if offset < self.end_offset else 0

    @property
    def has_pending(self) -> bool:
        """Batches wait for `relieve`."""
        return self._pending_bytes > 0

    def append(self, batch: bytes, base_offset: int, end_offset: int, leader_epoch: int) -> None:
        """Take one batch that begins at the log's end. It is durable once the journal has it.

        Raises OSError when the buffer is full and the segment cannot be written; the batch was not taken then, and all
        that was taken before is still there.
        """
        if base_offset != self.end_offset:
            raise AssertionError(
                f"batch at offset {base_offset}, the log of {self.directory} ends at {self.end_offset}"
            )
        if self.failed is not None:
            raise OSError(self.failed.errno, f"the log failed before: {self.failed}")
        size = len(batch)
        if self._pending_bytes >= self._flush_at:
            self.relieve()
        segment = self._segment
        used = segment.size + segment.pending_bytes
        if used + size > self._settings.segment_bytes and used:
            self._segment = segment = Segment(self._disk, self.directory, base_offset)
            self._segments.append(segment)
        if leader_epoch != self._last_epoch:
            self._note_epoch(leader_epoch, base_offset)
            self._last_epoch = leader_epoch
        segment.add(batch, base_offset, end_offset)
        self._pending_bytes += size
        self.end_offset = self._tail_end = end_offset

    def flush_segment(self) -> None:
        """Give the segment files what the journal has of the buffered batches, without sync.

        Raises OSError; what was not written stays buffered.
        """
        if self.failed is not None:
            raise OSError(self.failed.errno, f"the log failed before: {self.failed}")
        if not self._pending_bytes:
            return
        first = len(self._segments) - 1
        while first and self._segments[first - 1].pending_bytes:
            first -= 1
        try:
            for segment in self._segments[first:]:
                existed = segment.exists
                try:
                    segment.flush(self.journaled_end)
                finally:
                    self._names_dirty |= segment.exists and not existed
        finally:
            self._pending_bytes = sum(segment.pending_bytes for segment in self._segments[first:])
            self._flush_at = self._pending_bytes + self._settings.buffer_bytes

    def relieve(self) -> None:
        """`flush_segment`, but where no descriptor is left for a file the batches wait for the next time. The journal
        has them. Raises OSError."""
        try:
            self.flush_segment()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise

    def begin_sync(self, *, everything: bool = False) -> SyncTask:
        """Flush, and say what has to be synced to make the log independent of the journal up to its present end.

        `everything`: also what an earlier task, which may not have run yet, was to sync.
        """
        self.flush_segment()
        if self._tail_end < self.end_offset:
            self._name_end()
        dirty = [segment for segment in self._segments if segment.dirty or (everything and segment.exists)]
        for segment in dirty:
            segment.dirty = False
        everything = everything or self._files.unnamed
        checkpoint = self.epochs.encode() if self._checkpoint_dirty or everything else None
        task = self._files.sync_task(dirty, checkpoint, self._names_dirty or everything)
        self._checkpoint_dirty = self._names_dirty = False
        return task

    def begin_write_back(self) -> WriteBack | None:
        """Has the bytes that segment files got since the last call go to the disk soon; None if there are none."""
        grown = [(s, s.written_back, s.size - s.written_back) for s in self._segments if s.size > s.written_back]
        for segment, _, _ in grown:
            segment.written_back = segment.size
        return WriteBack(self._files, grown) if grown else None

    def _name_end(self) -> None:
        """No batch says where the log ends: an empty segment's name does."""
        segment = Segment(self._disk, self.directory, self.end_offset)
        segment.make()
        self._segment = segment
        self._segments.append(segment)
        self._tail_end = self.end_offset
        self._names_dirty = True

    def sync(self) -> None:
        """Flush and sync. Raises OSError; after a failed sync the log takes nothing any more."""
        self.begin_sync().run()

    def skip_to(self, offset: int) -> None:
        """The next batch begins at `offset`, or after it: what lies in between was compacted away elsewhere.

        Durable once the journal has it (`stage_gap`), and for good with the sync of the log: the name of a segment.
        """
        if offset < self.end_offset:
            raise AssertionError(f"skip to {offset}, the log of {self.directory} ends at {self.end_offset}")
        self.end_offset = offset

    def cut_end(self, offset: int) -> int:
        """End of the last batch that `begin_truncate(offset)` leaves; lower than that where records are missing.

        `flush_segment` comes first.
        """
        return self._cut_point(offset)[2]

    def _cut_point(self, offset: int) -> tuple[int, int, int]:
        """(index of the segment, its size, its end) of a log that is cut at `offset`. Raises DamagedLogError: where
        offsets go back, or bytes are no batch, it is not known what would be left."""
        index = segment_index(self._segments, offset)
        segment = self._segments[index]
        end, size = segment.base_offset, 0
        expected, position, is_below = end, segment.position_near(offset - 1), True
        for info in segment.infos(position):
            if info.base_offset < expected:
                reason = f"the batch at offset {info.base_offset} is behind one that ends at {expected}"
                raise DamagedLogError(segment.path, info.position, reason)
            expected, position = info.end_offset, info.position + info.size
            is_below &= expected <= offset
            if is_below:
                end, size = expected, position
        if position < segment.size:
            raise DamagedLogError(segment.path, position, "no batch here")
        return index, size, end

    def begin_truncate(self, offset: int) -> Callable[[], None]:
        """Cut the log so that it ends at `offset`, between two batches. What is returned makes the files so, durably,
        in any thread; nothing may be appended before that is done.

        The journal must have all that was appended, and then `stage_truncation` to `cut_end` and a `stage_gap`
        up to `offset`, durably. Both steps raise OSError; after the second one the log takes nothing any more.
        """
        if self._pending_bytes:
            raise AssertionError(f"{self.directory} is cut at {offset} while batches are not in the journal")
        index, size, end = self._cut_point(offset)
        segment = self._segments[index]
        dropped, self._segments[index + 1 :] = self._segments[index + 1 :], []
        self._segment, self._tail_end, self.end_offset, self.journaled_end = segment, end, offset, offset
        self._checkpoint_dirty |= self.epochs.truncate_to(offset)
        self._last_epoch = self.epochs.last_epoch
        cleaned = None
        if self.cleaned_to.end_offset > offset:
            cleaned = self.cleaned_to = CleanedTo(offset, min(offset, self.cleaned_to.tombstone_horizon))
        shortened = size < segment.size
        if shortened:
            segment.shorten(size)
        cut = partial(
            self._files.cut, offset, segment if shortened else None, [s.path for s in dropped if s.exists], cleaned
        )
        self._files.holds.retire(dropped)
        return cut

    def close(self) -> None:
        """Flush and close the files, without sync: the journal has what is not synced. Raises OSError."""
        try:
            self.flush_segment()
        finally:
            for segment in self._segments:
                segment.close()
            self._files.holds.close()

    # --- cleaning ----------------------------------------------------------------------------------------------------

    def closed_segments(self, limit: int) -> list[tuple[Segment, int]]:
        """(segment, its end offset) of all that lie below offset `limit` and are not written any more.

        The next one has a file: its name says where this one ends when compaction has taken the last batches.
        """
        return [
            (segment, after.base_offset)
            for segment, after in pairwise(self._segments)
            if after.base_offset <= limit and segment.exists and after.exists and not segment.pending_bytes
        ]

    def replace(self, base_offset: int, end_offset: int, segment: Segment) -> None:
        """`segment` stands in place of those from `base_offset` to `end_offset`, on the disk already."""
        first = bisect_left(self._segments, base_offset, key=lambda s: s.base_offset)
        last = bisect_left(self._segments, end_offset, key=lambda s: s.base_offset)
        replaced, self._segments[first:last] = self._segments[first:last], [segment]
        self._files.holds.retire(replaced)

    def _note_epoch(self, epoch: int, start_offset: int) -> None:
        try:
            if self.epochs.assign(epoch, start_offset):
                self._checkpoint_dirty = True
        except ValueError as exc:
            raise DamagedLogError(self._segment.path, 0, f"leader epochs go back: {exc}") from exc

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_range(self, start: int, bytes_max: int) -> RangeReader:
        """Reads a range as it is sent to other replicas, from `start`, below the log's end, on."""
        return RangeReader(self._segments, self._files.holds, start, self.end_offset, bytes_max)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The present segments, for reading only; in another thread within `holds`, as the cleaner replaces them."""
        return tuple(self._segments)

    @property
    def holds(self) -> Holds:
        return self._files.holds

    def read_batches(self, start_offset: int) -> Iterator[RecordBatch]:
        """Every batch from the one that holds `start_offset` to the present end. Raises DamagedLogError, OSError."""
        return read_batches(self._segments, self._files.holds, start_offset, self._settings.read_chunk_bytes)

    def batches_of(self, segment: Segment, end_offset: int) -> Iterator[RecordBatch]:
        """Every batch of a closed segment that ends at `end_offset`. Raises DamagedLogError, OSError."""
        return batches_of(segment, segment.size, 0, self._settings.read_chunk_bytes, end_offset=end_offset)
