"""Start-up of one log: decide what of its segments stands, what the journal adds, and when to refuse.

`scan_log` reads, `plan` decides, `cut_log` acts. `plan` is pure: it sees what the scan found and what the
journal knows, and says where to cut and which batches to append. Rules (replication.md, "Loss, rebuild, start-up"):

damage begins            valid batch after it    journal                                     outcome
nowhere                  -                       -                                           append what is missing
in the last batch,       no                      holds it                                    cut, append
torn or zero-filled tail no                      does not know of it                         cut: it was never
acknowledged
                         no                      knows that the log reached further          refuse
                         no                      has nothing; offsets are missing before it  refuse: others
                                                                                             overwritten?
further in front         yes                     holds all from there, of another boot       cut, append
                         yes                     otherwise, or it lost its own tail          refuse
behind a batch before    -                       -                                           refuse: it lies in the
which offsets are missing                                                                   place of others?
anywhere                 -                       its own tail may be lost: flush os          cut, append what fits:
the replica is rebuilt

The page cache outlives the process: within one boot, damage in the middle is corruption and no lost write, so the
replica refuses although the journal could mend it. A log that ends before the first journal entry that it needs, or
that holds another batch where the journal has one, refuses too.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import structlog

from muster_coordinator.log.disk import Disk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.history import History, JournaledBatch
from muster_coordinator.log.segments.scan import BatchInfo, Damage, SegmentScan
from muster_coordinator.log.segments.segment import Segment, scan_segment

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Found:
    """The result of the scan of the segments `first_index` to `last_index`. `file` is the last of them, and it ends at
    the damage if there is one. `start_offset`, `end_offset` and `batches` are those of what is not damaged.
    `later_from`: base offset of the last segment with bytes after the damage, -1 if there is none. `has_gap`: above
    what was cleaned here, offsets are missing between the batches. `is_displaced`: directly before the last batch in
    front of the damage, and the journal knows nothing of that.
    """

    file: Path
    first_index: int
    last_index: int
    start_offset: int
    end_offset: int
    batches: list[BatchInfo]
    damage: Damage | None
    later_from: int = -1
    has_gap: bool = False
    is_displaced: bool = False


@dataclass(frozen=True)
class Plan:
    """`keep_to`: everything in the segments at or after this offset is cut; `append`: then these are appended."""

    keep_to: int
    append: tuple[JournaledBatch, ...]

    @property
    def end_offset(self) -> int:
        return self.append[-1].end_offset if self.append else self.keep_to


def plan(found: Found, history: History) -> Plan:
    """Raises DamagedLogError when nothing proves that the result is all that was acknowledged."""
    if history.cache_lost:
        return _what_is_left(found, history)
    if found.damage is not None and found.is_displaced:
        reason = f"{found.damage.reason}; the batch before it may have overwritten others, of which offsets are missing"
        raise DamagedLogError(found.file, found.damage.position, reason)
    if found.damage is not None and found.damage.valid_after:
        _check_lost_write(found, found.damage, history)
    elif found.damage is not None and found.has_gap and history.next_batch(found.end_offset) is None:
        # Segments get what the journal has: so this is no torn write, but perhaps one that overwrote others.
        reason = f"{found.damage.reason}; offsets are missing before it, and the journal has no copy"
        raise DamagedLogError(found.file, found.damage.position, reason)
    decision = _merge(found, history)
    position = found.damage.position if found.damage else 0
    if decision.end_offset < history.known_end:
        raise DamagedLogError(
            found.file,
            position,
            f"log ends at offset {decision.end_offset}, it was durable up to {history.known_end}; {_reason(found)}",
        )
    if found.later_from > decision.end_offset and not _was_truncated(history, found.later_from):
        # The journal lost its tail as well: to cut here would drop whole segments that it has no copy of.
        raise DamagedLogError(
            found.file,
            position,
            f"{_reason(found)}; the journal goes on to offset {decision.end_offset} only, "
            f"and a segment begins after that at {found.later_from}",
        )
    if history.doubt:
        raise DamagedLogError(
            found.file, position, f"records may be missing after {decision.end_offset}: {history.doubt}"
        )
    return decision


def _what_is_left(found: Found, history: History) -> Plan:
    """The replica says that it lost data: nothing has to be proved of what lies behind, and all in front is whole."""
    try:
        return _merge(found, history)
    except DamagedLogError:  # the journal goes on further behind
        return Plan(found.end_offset, ())


def _reason(found: Found) -> str:
    return found.damage.reason if found.damage else "the segments are not damaged"


def _check_lost_write(found: Found, damage: Damage, history: History) -> None:
    """Damage with something valid after it may only be a write that a power loss took."""
    covering = history.next_batch(found.end_offset)
    if covering is None:
        raise DamagedLogError(
            found.file, damage.position, f"{damage.reason}; valid batches follow, and the journal has no copy"
        )
    if covering.boot_id == history.boot_id:
        raise DamagedLogError(
            found.file, damage.position, f"{damage.reason}; valid batches follow, and no power loss explains it"
        )


def _merge(found: Found, history: History) -> Plan:
    known = {batch.base_offset: batch for batch in found.batches}
    keep_to = end = found.end_offset
    append: list[JournaledBatch] = []
    for batch in history.batches:
        if batch.end_offset <= found.start_offset:
            continue
        if not append and batch.end_offset <= keep_to and _same(known.get(batch.base_offset), batch):
            continue
        if batch.base_offset < end and not append and _was_truncated(history, batch.base_offset):
            keep_to = end = batch.base_offset  # the truncation is known, the segment was not cut yet
        if batch.base_offset != end:
            raise DamagedLogError(
                found.file,
                found.damage.position if found.damage else 0,
                f"the log ends at offset {end}, the journal goes on at {batch.base_offset}; {_reason(found)}",
            )
        append.append(batch)
        end = batch.end_offset
    if history.truncated_to is not None and not append:
        journal_end = history.known_end
        if history.truncated_to <= journal_end < keep_to:
            keep_to = journal_end  # what is after it was appended before the truncation
    return Plan(keep_to, tuple(append))


def _same(info: BatchInfo | None, batch: JournaledBatch) -> bool:
    """The CRC of a batch covers neither its base offset nor its leader epoch, so these are compared as well."""
    if not batch.data:
        return info is None
    if info is None or info.base_offset != batch.base_offset or info.end_offset != batch.end_offset:
        return False
    epoch_and_crc = batch.data[12:16] + batch.data[17:21]
    return epoch_and_crc == info.leader_epoch.to_bytes(4, "big", signed=True) + info.crc.to_bytes(4, "big")


def _was_truncated(history: History, offset: int) -> bool:
    return history.truncated_to is not None and offset >= history.truncated_to


def scan_log(disk: Disk, segments: list[Segment], history: History, cleaned_to: int = 0) -> Found:
    """Check the last segment and all that the journal has something of: closed ones before that were synced.

    Where the page cache was lost, or entries of the journal, they may not have been, nor what names the epochs in them,
    but for what was cleaned: all above `cleaned_to` is checked. An end of a segment that is not the begin of the next
    one may be a lost write then, as well as records that were compacted elsewhere.
    """
    touched = [history.batches[0].base_offset] if history.batches else []
    touched += [history.truncated_to] if history.truncated_to is not None else []
    touched += [cleaned_to] if history.cache_lost or history.has_hole else []
    first = _segment_of(segments, min(touched, default=segments[-1].base_offset))
    start_offset = segments[first].base_offset
    batches: list[BatchInfo] = []
    for index, segment in enumerate(segments[first:], first):
        # compaction may have removed the last batches of the segment before, so the name of this one counts as well
        begin = max(segment.base_offset, batches[-1].end_offset if batches else 0)
        scan = _compare(scan_segment(disk, segment.descriptor, segment.base_offset), begin, history)
        batches += scan.batches
        for info in scan.batches:
            segment.note(info.base_offset, info.position)
        end_offset = max(begin, batches[-1].end_offset if batches else 0)
        damage = _with_later_segments(scan, end_offset, segments[index + 1 :], history, cleaned_to)
        if damage is not None or segment is segments[-1]:
            later_from = max((s.base_offset for s in segments[index + 1 :] if s.size), default=-1)
            gap = _has_gap(batches, max(start_offset, cleaned_to))
            displaced = bool(scan.batches) and _is_displaced(batches, max(segment.base_offset, cleaned_to), history)
            return Found(
                segment.path, first, index, start_offset, end_offset, batches, damage, later_from, gap, displaced
            )
    raise AssertionError("a log has at least one segment")


def _has_gap(batches: list[BatchInfo], expected: int) -> bool:
    """Tells whether offsets are missing between batches, from offset `expected` on."""
    for info in batches:
        if info.base_offset >= expected:
            if info.base_offset > expected:
                return True
            expected = info.end_offset
    return False


def _is_displaced(batches: list[BatchInfo], expected: int, history: History) -> bool:
    """Offsets are missing between the last two batches, from `expected` on, and the journal has no gap there."""
    last = batches[-1].base_offset
    if len(batches) > 1:
        expected = max(expected, batches[-2].end_offset)
    return last > expected and not any(each.end_offset == last and not each.data for each in history.batches)


def _compare(scan: SegmentScan, begin: int, history: History) -> SegmentScan:
    """A batch that is not as the journal has it is damage as well."""
    index = _first_unlike(scan.batches, begin, history)
    if index is None:
        return scan
    first = scan.batches[index]
    followed = index + 1 < len(scan.batches) or (scan.damage is not None and scan.damage.valid_after)
    reason = f"the batch at offset {first.base_offset} is not the one that the journal has"
    return SegmentScan(scan.batches[:index], scan.size, Damage(first.position, reason, followed))


def _with_later_segments(
    scan: SegmentScan, end_offset: int, later: list[Segment], history: History, cleaned_to: int
) -> Damage | None:
    """A segment with others after it: those are something valid after its damage, and its tail may be lost whole."""
    followed = any(segment.size for segment in later)
    if scan.damage is not None:
        return Damage(scan.damage.position, scan.damage.reason, scan.damage.valid_after or followed)
    if (history.cache_lost or history.has_hole) and later and cleaned_to <= end_offset < later[0].base_offset:
        reason = f"the segment ends at offset {end_offset}, the next begins at {later[0].base_offset}"
        return Damage(scan.size, reason, followed)
    missing = history.next_batch(end_offset) if later else None
    if missing is not None and missing.base_offset < later[0].base_offset:
        reason = f"the segment ends at offset {end_offset}, the next begins at {later[0].base_offset}"
        return Damage(scan.size, reason, followed)
    return None


def _first_unlike(batches: list[BatchInfo], expected: int, history: History) -> int | None:
    """Index of the first batch that is not as the journal has it, although no truncation explains that.

    `expected`: offset at which the first one should begin. A header's base offset and leader epoch are outside of the
    CRC: only the journal can tell that they are damaged.
    """
    journaled = {
        batch.base_offset: batch for batch in history.batches if not _was_truncated(history, batch.base_offset)
    }
    for index, info in enumerate(batches):
        batch = journaled.get(expected)
        while batch is not None and not batch.data:
            batch = journaled.get(batch.end_offset)
        if batch is not None and not _same(info, batch):
            return index
        expected = info.end_offset
    return None


def cut_log(disk: Disk, directory: Path, segments: list[Segment], found: Found, decision: Plan) -> None:
    """Carry out `decision.keep_to`, durably; shortens `segments`. Does nothing to a log without fault."""
    keep_to = decision.keep_to
    if found.damage is None and keep_to == found.end_offset:
        return
    index = min(_segment_of(segments, keep_to), found.last_index)
    segment = segments[index]
    kept = [info for info in found.batches if segment.base_offset <= info.base_offset < keep_to]
    size = kept[-1].position + kept[-1].size if kept else 0
    logger.warning(
        "log_cut",
        file=str(segment.path),
        position=size,
        end_offset=keep_to,
        reason=found.damage.reason if found.damage else "truncated before",
        cut_bytes=segment.size - size,
        cut_segments=len(segments) - index - 1,
    )
    drop_segments(disk, directory, segments, index + 1)
    segment.cut(size)


def rewrite_journaled(segments: list[Segment], found: Found, decision: Plan, history: History) -> None:
    """Write again what the journal has of this boot and the segments seem to have.

    A sync that failed leaves pages that the kernel counts as written although they are not on the disk (Linux does):
    only a new write takes them there, and they are read from the page cache until the machine ends. Raises OSError.
    """
    journaled = {b.base_offset: b.data for b in history.batches if b.data and b.boot_id == history.boot_id}
    for info in found.batches:
        data = journaled.get(info.base_offset)
        if data is not None and info.base_offset < decision.keep_to:
            segments[_segment_of(segments, info.base_offset)].rewrite(info.position, data)


def drop_segments(disk: Disk, directory: Path, segments: list[Segment], index: int) -> None:
    """Delete the segments from `index` on, durably, the last one first."""
    if index >= len(segments):
        return
    while len(segments) > index:
        segment = segments.pop()
        if segment.exists:
            segment.close()
            disk.unlink(segment.path)
    disk.fsync_dir(directory)


def _segment_of(segments: list[Segment], offset: int) -> int:
    """Index of the segment that `offset` belongs into."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
