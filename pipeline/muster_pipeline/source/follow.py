"""Follow logs that grow: where each was read up to, what came since, and whether it is still the same log.

A position names the segment, the byte behind the last batch that was taken, and that batch's place and head: offset,
leader epoch and CRC. A log that was truncated below it, or rewritten by a cleaner, no longer has that batch there; then
what was given out does not hold any more, and the only honest answer is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD
from muster_pipeline.decode.bytes_source import ByteSource
from muster_pipeline.decode.errors import PipelineError, SegmentDamagedError
from muster_pipeline.decode.schema import Problem
from muster_pipeline.source.files import DEFAULT_SPLIT_BYTES, SegmentFile, Split, splits_of, whole_batches
from muster_pipeline.source.places import is_pod, open_segment

__all__ = [
    "LogPosition",
    "LogRewrittenError",
    "Positions",
    "advance",
    "covers",
    "decode_positions",
    "encode_positions",
    "ranges",
]

NO_BATCH = -1
_HEAD_BYTES = 21
"""Base offset, length, leader epoch, magic, CRC: what another leader wrote there has another epoch, if nothing else."""


class LogRewrittenError(PipelineError):
    """A log does not hold any more what was read from it."""


@dataclass(frozen=True)
class LogPosition:
    """``position`` bytes of the segment with base offset ``segment`` are read; its last batch begins at ``last``, with
    the bytes ``head``."""

    segment: int
    position: int = 0
    last: int = NO_BATCH
    head: str = ""


Positions = Mapping[str, LogPosition]
"""By the log's directory. A log that is not named is to be read from its start."""


def encode_positions(positions: Positions) -> dict[str, Any]:
    """As JSON has it, for a stream's checkpoint."""
    return {"logs": {directory: asdict(position) for directory, position in positions.items()}}


def decode_positions(data: Mapping[str, Any]) -> Positions:
    return {directory: LogPosition(**fields) for directory, fields in data["logs"].items()}


def _by_log(segments: Iterable[SegmentFile]) -> Iterator[tuple[str, list[SegmentFile]]]:
    for directory, group in groupby(segments, key=lambda each: each.log):
        yield directory, sorted(group, key=lambda each: each.base_offset)


def advance(segments: Iterable[SegmentFile], start: Positions, *, may_stall: bool = False) -> Positions:
    """How far the logs can be read now: to the end of the last whole batch of each. ``segments`` sorted by path.

    Raises LogRewrittenError, SegmentReadError; unless ``may_stall`` SegmentDamagedError at a length in a header that
    cannot be, because nothing behind it will ever be read. Zeros behind the last batch are waited for, as preallocated
    files have them. So is a pod that has restarted and does not know yet that what it served is committed.
    """
    logs = dict(_by_log(segments))
    gone = sorted(start.keys() - logs.keys())
    waiting = {directory: start[directory] for directory in gone if is_pod(directory)}
    if len(waiting) < len(gone):
        raise LogRewrittenError(f"{gone[0]} is away; it was read up to {start[gone[0]]}")
    found = {
        directory: _advance_log(directory, log, start.get(directory), may_stall) for directory, log in logs.items()
    }
    return waiting | found


def _advance_log(directory: str, log: list[SegmentFile], start: LogPosition | None, may_stall: bool) -> LogPosition:
    position = start or LogPosition(log[0].base_offset)
    todo = [each for each in log if each.base_offset >= position.segment]
    if not todo and start is not None and is_pod(directory):
        return start
    if not todo or todo[0].base_offset != position.segment:
        raise LogRewrittenError(f"{directory} has no segment {position.segment:020d} any more, which was being read")
    with open_segment(todo[0].path) as source:
        if source.size < position.position and is_pod(directory):
            return position
        _check_same(source, position)
    if len(todo) > 1:  # rolled: nothing comes behind the earlier ones any more, ``ranges`` reads them to their ends
        position = LogPosition(todo[-1].base_offset)
    with open_segment(todo[-1].path) as source:
        return _advance_in(source, position, may_stall)


def _advance_in(source: ByteSource, position: LogPosition, may_stall: bool) -> LogPosition:
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
    return LogPosition(position.segment, end, last, _head(source, last))


def _head(source: ByteSource, position: int) -> str:
    return bytes(source.read(position, _HEAD_BYTES)).hex()


def _check_same(source: ByteSource, position: LogPosition) -> None:
    if source.size < position.position:
        raise LogRewrittenError(
            f"{source.name} has {source.size} bytes, and was read up to byte {position.position}: it was truncated"
        )
    if position.last == NO_BATCH:
        return
    if _head(source, position.last) != position.head:
        raise LogRewrittenError(
            f"{source.name} holds another batch at byte {position.last} than was read there: "
            "it was truncated and written again, or compacted"
        )


def covers(segments: Iterable[SegmentFile], end: Positions) -> bool:
    """The segments of these positions are there; so all before them are whole, also as a pod serves them."""
    there = {(each.log, each.base_offset) for each in segments}
    return all((directory, until.segment) in there for directory, until in end.items())


def ranges(
    segments: Iterable[SegmentFile], start: Positions, end: Positions, split_bytes: int = DEFAULT_SPLIT_BYTES
) -> Iterator[Split]:
    """What lies between two positions, as splits. Raises LogRewrittenError: not all is there; SegmentReadError."""
    logs = dict(_by_log(segments))
    for directory, until in end.items():
        if not covers(logs.get(directory, ()), {directory: until}):
            raise LogRewrittenError(f"{directory} does not hold any more what was found there, up to {until}")
    for directory, log in logs.items():
        if directory not in end:
            continue
        until = end[directory]
        first = start.get(directory) or LogPosition(log[0].base_offset)
        for segment in log:
            if not first.segment <= segment.base_offset <= until.segment:
                continue
            begin = first.position if segment.base_offset == first.segment else 0
            stop = until.position if segment.base_offset == until.segment else None
            yield from (each for each in splits_of(segment, split_bytes, begin, stop) if each.size > 0)
