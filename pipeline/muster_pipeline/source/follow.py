"""Follows logs that grow: how far each was read, which bytes are new, and whether it is still the same log.

A position names the segment, the byte after the last batch that was read, and the start and header (offset, leader
epoch, CRC) of that batch. If the batch is not there any more, the position is found by its offset: a log that was
compacted continues after it, and so does another pod's replica of the partition. A log that was truncated below it,
wiped or re-sharded does not. Rows that were returned earlier are then wrong, so the query fails, or the whole log is
read again with a row that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from struct import Struct
from typing import Any

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD
from muster_pipeline.decode.bytes_source import ByteSource
from muster_pipeline.decode.errors import PipelineError, SegmentDamagedError
from muster_pipeline.decode.schema import Problem
from muster_pipeline.source.files import DEFAULT_SPLIT_BYTES, SegmentFile, Split, splits_of, whole_batches
from muster_pipeline.source.lineage import Lineage, Lineages
from muster_pipeline.source.locations import is_pod, open_segment

NO_BATCH = -1
_WINDOW_BYTES = 4 << 20
_HEAD_BYTES = 21
"""Base offset, length, leader epoch, magic, CRC. A batch of another leader differs at least in its epoch."""
_OFFSETS = Struct(">q4xi7xi")
"""Base offset, leader epoch, last offset delta."""


class LogRewrittenError(PipelineError):
    """A log no longer contains the records that were read from it."""


@dataclass(frozen=True)
class LogPosition:
    """`position` bytes of the segment with base offset `segment` are read; its last batch begins at `last`, with
    the bytes `head`, in `leader_epoch`; `next_offset` is the first that was not read.

    `log_id`: the log's identity, "" where its place says none. `restarted`: why the log was begun anew here.
    """

    segment: int
    position: int = 0
    last: int = NO_BATCH
    head: str = ""
    next_offset: int = -1
    leader_epoch: int = -1
    log_id: str = ""
    restarted: str = ""


Positions = Mapping[str, LogPosition]
"""The position in each log, by its directory. A log that is not named is to be read from its start."""
Logs = Mapping[str, list[SegmentFile]]


@dataclass(frozen=True)
class Restart:
    """The log in `home` is not the one that was read there before, for this `reason`."""

    home: str
    reason: str


def encode_positions(positions: Positions) -> dict[str, Any]:
    """Convert positions to JSON types, for a stream's checkpoint."""
    return {"logs": {directory: asdict(position) for directory, position in positions.items()}}


def decode_positions(data: Mapping[str, Any]) -> Positions:
    return {directory: LogPosition(**fields) for directory, fields in data["logs"].items()}


def _by_log(segments: Iterable[SegmentFile]) -> dict[str, list[SegmentFile]]:
    return {
        directory: sorted(group, key=lambda each: each.base_offset)
        for directory, group in groupby(segments, key=lambda each: each.log)
    }


def _twin(home: str, homes: Iterable[str]) -> str | None:
    """Return the one of `homes` that is this log, or a replica of its partition on another pod."""
    if not is_pod(home):
        return home if home in homes else None
    number = home.rpartition("/")[2]
    twins = [each for each in homes if is_pod(each) and each.rpartition("/")[2] == number]
    return home if home in twins else next(iter(twins), None)


def advance(
    segments: Iterable[SegmentFile], start: Positions, *, may_stall: bool = False, restart: bool = False
) -> Positions:
    """Return how far the logs can be read now: to the end of the last whole batch. `segments` are sorted by path.

    Raises SegmentReadError; unless `restart` LogRewrittenError; unless `may_stall` SegmentDamagedError at a length
    in a header that cannot be, because nothing after it will ever be read. Zeros after the last batch are no error:
    preallocated files have them. Neither is a pod that has restarted and does not know yet how far its log is
    committed, or that has fewer records than the pod that served the partition before.
    """
    logs, lineages = _by_log(segments), Lineages()
    ends: dict[str, LogPosition] = {}
    for home, log in logs.items():
        before = _twin(home, start)
        position = None if before is None else start[before]
        lineage = lineages.of(home)
        try:
            found = None if position is None else _locate(log, position, lineage, moved=home != before)
        except LogRewrittenError as exc:
            if not restart:
                raise
            ends[home] = replace(_advance_log(log, None, lineage, may_stall), restarted=str(exc))
            continue
        if position is None or found is not None:
            ends[home] = _advance_log(log, found, lineage, may_stall)
        elif before is not None:
            ends[before] = position
    for home in start.keys() - ends.keys():
        if _twin(home, ends) is None and is_pod(home):
            ends[home] = start[home]
        elif _twin(home, ends) is None and not restart:
            raise LogRewrittenError(f"{home} is away; it was read up to {start[home]}")
    return ends


def _advance_log(log: list[SegmentFile], start: LogPosition | None, lineage: Lineage, may_stall: bool) -> LogPosition:
    """Return the position after the last whole batch. Segments without a batch are skipped: it names a batch."""
    position = start or LogPosition(log[0].base_offset)
    for segment in reversed([each for each in log if each.base_offset >= position.segment]):
        here = segment.base_offset == position.segment
        with open_segment(segment.path) as source:
            end = _advance_in(source, position if here else LogPosition(segment.base_offset), lineage, may_stall)
        if end.last != NO_BATCH:
            return end
    return position


def _advance_in(source: ByteSource, position: LogPosition, lineage: Lineage, may_stall: bool) -> LogPosition:
    end, last = position.position, NO_BATCH
    for last, size in whole_batches(source, end):
        end = last + size
    if source.size - end >= HEADER_BYTES and not may_stall:
        claimed = int.from_bytes(source.read(end + 8, 4), "big", signed=True) + LENGTH_OVERHEAD
        if claimed - LENGTH_OVERHEAD != 0 and claimed < HEADER_BYTES:
            detail = f"length {claimed - LENGTH_OVERHEAD} is less than a batch header: the stream cannot get past it"
            raise SegmentDamagedError(source.name, end, Problem.BAD_HEADER, detail)
    if last == NO_BATCH:
        return position
    return _position_after(source, position.segment, last, end, lineage.log_id)


def _position_after(source: ByteSource, segment: int, last: int, end: int, log_id: str) -> LogPosition:
    """Return the position after the batch from byte `last` to `end`."""
    header = bytes(source.read(last, _OFFSETS.size))
    base, epoch, delta = _OFFSETS.unpack(header)
    return LogPosition(segment, end, last, header[:_HEAD_BYTES].hex(), base + delta + 1, epoch, log_id)


def _head(source: ByteSource, position: int) -> str:
    return bytes(source.read(position, _HEAD_BYTES)).hex()


def _locate(
    log: list[SegmentFile], position: LogPosition, lineage: Lineage, *, moved: bool = False
) -> LogPosition | None:
    """Find `position` in the present `log`; None if the log does not reach it yet.

    `moved` says that the position is from another replica. Raises LogRewrittenError, SegmentReadError.
    """
    if not moved and _is_unchanged(log, position):
        return position
    known = moved or (position.log_id == lineage.log_id and (bool(lineage.log_id) or is_pod(log[0].log)))
    found, same = _by_offset(log, position) if position.next_offset >= 0 else (None, False)
    if found is not None and (same or (known and lineage.epoch_at(position.next_offset - 1) == position.leader_epoch)):
        return found
    if found is None and known and is_pod(log[0].log):
        return None
    raise LogRewrittenError(_what_happened(log, position, lineage, found is not None))


def _is_unchanged(log: list[SegmentFile], position: LogPosition) -> bool:
    """True if the last batch that was read is still at the same byte."""
    segment = next((each for each in log if each.base_offset == position.segment), None)
    if segment is None:
        return False
    with open_segment(segment.path) as source:
        if source.size < position.position:
            return False
        return position.last == NO_BATCH or _head(source, position.last) == position.head


def _by_offset(log: list[SegmentFile], position: LogPosition) -> tuple[LogPosition | None, bool]:
    """Find the first batch after the position by its offset.

    Returns its position, or None if the log ends before it; and whether the batch before it is the one read last.
    """
    wanted = position.next_offset
    at = max((index for index, each in enumerate(log) if each.base_offset <= wanted), default=0)
    segment = log[at]
    with open_segment(segment.path) as opened:
        source = _ReadAhead(opened)
        end, last, reached = 0, NO_BATCH, segment.base_offset
        for batch, size in whole_batches(source):
            base, _, delta = _OFFSETS.unpack_from(source.read(batch, _OFFSETS.size))
            if base >= wanted:
                break
            end, last, reached = batch + size, batch, base + delta + 1
        else:
            if reached < wanted and at == len(log) - 1:
                return None, False
        if last == NO_BATCH:
            return LogPosition(segment.base_offset, next_offset=wanted, leader_epoch=position.leader_epoch), False
        same = _head(source, last) == position.head
        found = _position_after(source, segment.base_offset, last, end, position.log_id)
    return replace(found, next_offset=wanted, leader_epoch=position.leader_epoch), same


class _ReadAhead:
    """Reads large chunks instead of single batches, because each read from a pod is an HTTP request."""

    def __init__(self, source: ByteSource) -> None:
        self.name, self.size = source.name, source.size
        self._source = source
        self._start = 0
        self._window: bytes | memoryview = b""

    def read(self, position: int, size: int) -> bytes | memoryview:
        if not self._start <= position <= position + size <= self._start + len(self._window):
            self._start = position
            self._window = self._source.read(position, max(size, min(_WINDOW_BYTES, self.size - position)))
        return self._window[position - self._start : position - self._start + size]


def _what_happened(log: list[SegmentFile], position: LogPosition, lineage: Lineage, reaches: bool) -> str:
    home, read = log[0].log, f"it was read up to offset {position.next_offset}, leader epoch {position.leader_epoch}"
    if lineage.log_id != position.log_id:
        return f"{home} is another log now, {lineage.log_id}, not {position.log_id}: wiped, or re-sharded; {read}"
    if not reaches:
        return f"{home} was truncated below what was read; {read}"
    epoch = lineage.epoch_at(position.next_offset - 1)
    if epoch >= 0 and epoch != position.leader_epoch:
        return f"{home} was truncated and written again in leader epoch {epoch}; {read}"
    return f"{home} holds other batches than were read, and nothing says that it is the same log, compacted; {read}"


def covers(segments: Iterable[SegmentFile], end: Positions) -> bool:
    """The segments of these positions are there, or later ones; so all before them are whole, also as a pod serves
    them.
    """
    logs = _by_log(segments)
    return all(_reaches(logs, home, until) for home, until in end.items())


def _reaches(logs: Logs, home: str, until: LogPosition) -> bool:
    twin = _twin(home, logs)
    return twin is not None and logs[twin][-1].base_offset >= until.segment


def ranges(
    segments: Iterable[SegmentFile], start: Positions, end: Positions, split_bytes: int = DEFAULT_SPLIT_BYTES
) -> Iterator[Split]:
    """Return the bytes between two positions as splits. Raises LogRewrittenError: some are gone; SegmentReadError."""
    logs, lineages = _by_log(segments), Lineages()
    for home, until in end.items():
        before, twin = _twin(home, start), _twin(home, logs)
        first = None if before is None or until.restarted else start[before]
        if before is not None and start[before] == until:
            continue
        if twin is None or not _reaches(logs, home, until):
            raise LogRewrittenError(f"{home} no longer holds the records that were found there, up to {until}")
        log, lineage = logs[twin], lineages.of(twin)
        stop = _locate(log, until, lineage, moved=twin != home)
        begin = LogPosition(log[0].base_offset) if first is None else _locate(log, first, lineage, moved=twin != before)
        if stop is None or begin is None:
            raise LogRewrittenError(f"{twin} does not reach {until} any more")
        yield from _between(log, begin, stop, split_bytes)


def _between(log: list[SegmentFile], begin: LogPosition, stop: LogPosition, split_bytes: int) -> Iterator[Split]:
    for segment in log:
        if begin.segment <= segment.base_offset <= stop.segment:
            first = begin.position if segment.base_offset == begin.segment else 0
            last = stop.position if segment.base_offset == stop.segment else None
            yield from (each for each in splits_of(segment, split_bytes, first, last) if each.size > 0)


def restarts(start: Positions, end: Positions) -> Iterator[Restart]:
    """Return the logs that were restarted between the two positions, and those that are away."""
    for home, until in end.items():
        if until.restarted and start.get(home) != until:
            yield Restart(home, until.restarted)
    for home, position in start.items():
        if _twin(home, end) is None:
            yield Restart(home, f"{home} is away; it was read up to offset {position.next_offset}")
