"""The cleaner: rewrites the closed segments of one log without what compaction drops.

A pass goes over all closed segments below the commit point, from the start of the log. Neighbours are merged into one
segment as long as the result stays within the segment size. Nothing of the log is touched in place:

1. The segments, their names and the epoch checkpoint are synced. Then `muster.cleaner` says, durably, up to where
   the log is cleaned: after this the journal's copies of those batches are not looked at any more.
2. What is kept of a group of segments goes into `<base>-<end>.compacting`, which is synced.
3. Its rename to `<base>-<end>.compacted` decides: from here on a start carries on (`finish_cleaning`).
4. The other segments of the group are removed, then the file takes the name, and the place, of the first one.

Groups are replaced first to last, which `compaction` relies on. Batches keep their base and last offsets, and
leader-change records stay, so epochs, the log's end and ranges read from it are as before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.log.disk import Disk, write_fully
from muster_coordinator.log.segments.cleaned import COMPACTING, CleanedTo, compacted_name, put_in_place
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.segments.segment import Segment
from muster_coordinator.log.segments.sync import SyncTask

STEP_BYTES = 32 << 10
"""Bytes that one step reads or writes: a millisecond or so of work."""
OFFSETS_PER_SEGMENT = 2**31 - 1
"""Kafka's indexes hold offsets relative to the segment's in 32 bits."""


@dataclass
class _Group:
    """Segments that become one."""

    base_offset: int
    end_offset: int
    segments: list[Segment]
    path: Path
    descriptor: int
    size: int = 0


class Cleaning:
    """One pass. Made on the event loop; each step of `steps` in any thread, one at a time; after each of them
    `hand_over` on the event loop.
    """

    def __init__(
        self, disk: Disk, log: PartitionLog, limit: int, *, now_ms: int, delete_retention_ms: int, segment_bytes: int
    ) -> None:
        """`limit`: offset at or below the commit point, and a closed segment lies below it; `now_ms`: wall clock.
        Raises OSError.
        """
        self.segments = log.closed_segments(limit)
        if not self.segments:
            raise AssertionError(f"{log.directory} has no closed segment below {limit}")
        self.bytes_before = sum(segment.size for segment, _ in self.segments)
        self.bytes_after = 0
        self._disk = disk
        self._log = log
        self._sync: SyncTask = log.begin_sync(everything=True)
        self._compaction = Compaction(now_ms, delete_retention_ms)
        self._segment_bytes = segment_bytes
        self._group: _Group | None = None
        self._replaced: list[tuple[int, int, Segment]] = []
        self._cleaned_to = log.cleaned_to
        self._whole = False

    def steps(self) -> Generator[int, None, None]:
        """Each step yields the bytes that it read and wrote. Raises OSError, DamagedLogError, and ValueError where a
        record cannot be read; the log is as before then, or cleaned up to some segment.
        """
        try:
            self._sync.run()
            yield 0
            yield from self._note()
            cleaned = self._log.cleaned_to
            horizon = max(cleaned.tombstone_horizon, self._compaction.horizon)
            self._cleaned_to = CleanedTo(max(cleaned.end_offset, self.segments[-1][1]), horizon)
            self._cleaned_to.write(self._disk, self._log.directory)
            yield 0
            yield from self._rewrite()
            self._whole = True
        finally:
            self._drop_group()

    def hand_over(self) -> bool:
        """Let the log use the segments that are in place by now. Returns whether there are any, or the horizon rose."""
        replaced, self._replaced = self._replaced, []
        before = self._log.cleaned_to.tombstone_horizon
        for base_offset, end_offset, segment in replaced:
            self._log.replace(base_offset, end_offset, segment)
        end_offset = self._cleaned_to.end_offset if self._whole else self._log.cleaned_to.end_offset
        self._log.cleaned_to = CleanedTo(end_offset, self._cleaned_to.tombstone_horizon)
        changed = bool(replaced) or self._cleaned_to.tombstone_horizon != before
        self._log.cleanings += changed
        return changed

    def _note(self) -> Iterator[int]:
        size = 0
        for segment, end_offset in self.segments:
            for batch in self._log.batches_of(segment, end_offset):
                self._compaction.note(batch)
                size += len(batch.data)
                if size >= STEP_BYTES:
                    yield size
                    size = 0
        yield size

    def _rewrite(self) -> Iterator[int]:
        for segment, end_offset in self.segments:
            group = self._group
            if group is not None and not self._fits(group, segment, end_offset):
                self._finish(group)
                group = None
                yield 0
            if group is None:
                group = self._begin(segment)
            group.segments.append(segment)
            group.end_offset = end_offset
            yield from self._copy(segment, group)
        if self._group is not None:
            self._finish(self._group)
        yield 0

    def _fits(self, group: _Group, segment: Segment, end_offset: int) -> bool:
        return (
            group.size + segment.size <= self._segment_bytes and end_offset - group.base_offset <= OFFSETS_PER_SEGMENT
        )

    def _begin(self, segment: Segment) -> _Group:
        path = self._log.directory / f"{segment.path.stem}{COMPACTING}"
        descriptor = self._disk.open(path, create=True)
        self._group = _Group(segment.base_offset, segment.base_offset, [], path, descriptor)
        self._disk.truncate(descriptor, 0)
        return self._group

    def _copy(self, segment: Segment, group: _Group) -> Iterator[int]:
        kept: list[bytes] = []
        read = 0
        for batch in self._log.batches_of(segment, group.end_offset):
            kept.append(self._compaction.keep(batch))
            read += len(batch.data)
            if read >= STEP_BYTES:
                yield read + self._write(group, kept)
                kept, read = [], 0
        yield read + self._write(group, kept)

    def _write(self, group: _Group, batches: list[bytes]) -> int:
        data = b"".join(batches)
        if data:
            write_fully(self._disk, group.descriptor, data, group.size)
            group.size += len(data)
        return len(data)

    def _finish(self, group: _Group) -> None:
        self.bytes_after += group.size
        if len(group.segments) == 1 and group.size == group.segments[0].size:
            self._drop_group()  # nothing went
            return
        self._disk.fdatasync(group.descriptor)
        self._disk.close(group.descriptor)
        self._group = None
        directory = self._log.directory
        compacted = directory / compacted_name(group.base_offset, group.end_offset)
        self._disk.rename(group.path, compacted)
        self._disk.fsync_dir(directory)
        try:
            put_in_place(self._disk, directory, compacted.name)
            segment = Segment.open(self._disk, directory, group.base_offset)
        except OSError:
            self._log.cannot_clean = f"{compacted.name} is not in place: the next start carries on"
            raise
        self._replaced.append((group.base_offset, group.end_offset, segment))

    def _drop_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            self._disk.close(group.descriptor)
            self._disk.unlink(group.path)
