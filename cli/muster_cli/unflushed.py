"""Finds records of a pod's logs that only its journal has: the newest batches of a pod that did not end in order (ADR
1).

A command that copies or rewrites the segments alone would lose these acknowledged offsets silently, and one that reads
them would miss the newest ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster_cli.errors import CliError
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.journal.format import START, entries_of, hash_log_id, scan_frames
from muster_coordinator.log.journal.history import HistoryBuilder
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseError, PromiseFile
from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.schema import Kind, Problem
from muster_pipeline.source.files import SegmentFile, whole_batches

_LAST_DELTA = slice(23, 27)


@dataclass(frozen=True)
class Unflushed:
    """Records of one log that only the journal has.

    `segment`: the log's last segment. Its batches end at byte `position` and before `offset`, where the journal has
    `records` more in `batches`, `size` bytes in all. `unknown`: why the journal could not be read, "" if it could.
    """

    segment: SegmentFile
    position: int
    offset: int
    records: int = 0
    batches: int = 0
    size: int = 0
    unknown: str = ""

    def __str__(self) -> str:
        if self.unknown:
            return f"cannot tell whether its journal holds more of it: {self.unknown}"
        return f"{self.records} records are in the pod's journal only, because the pod did not end in order"


def refuse_unflushed(segments: Iterable[SegmentFile]) -> None:
    """Raise CliError if one of these segments belongs to a log of which a pod's journal has more. Blocks."""
    for each in unflushed(segments):
        raise CliError(
            f"{each.segment.log}: {each}" + ("" if each.unknown else ". Start it and stop it in order first")
        )


def unflushed_rows(segments: Iterable[SegmentFile]) -> list[dict[str, Any]]:
    """The records that these segments lack, as rows of the pipeline's table of problems. Blocks."""
    return [
        {
            **each.segment.origin().place,
            "position": each.position,
            "offset": each.offset,
            "kind": Kind.DAMAGED,
            "problem": Problem.JOURNAL_ONLY,
            "problem_detail": str(each)
            if each.unknown
            else f"{each.records} records in {each.batches} batches from offset {each.offset} on are in the pod's "
            "journal only: it runs, or did not end in order. Read http://POD:PORT, or start it and stop it in order",
            "problem_bytes": each.size,
        }
        for each in unflushed(segments)
    ]


def unflushed(segments: Iterable[SegmentFile]) -> Iterator[Unflushed]:
    """The logs of which a pod's journal has more than the segments, or may have more. Blocks."""
    last: dict[Path, SegmentFile] = {}
    for each in segments:
        home = Path(each.log)
        if (home.parent / "journal").is_dir() and (home / PROMISE_NAME).exists():
            last[home] = max(each, last.get(home, each), key=lambda one: one.base_offset)
    journals: dict[Path, HistoryBuilder] = {}
    for home, segment in last.items():
        position, offset = _end(segment)
        try:
            if home.parent not in journals:
                journals[home.parent] = _journal(home.parent / "journal")
            found = _compare(journals[home.parent], home, segment, position, offset)
        except (PromiseError, OSError) as error:
            found = Unflushed(segment, position, offset, unknown=str(error))
        if found.records or found.unknown:
            yield found


def _compare(journal: HistoryBuilder, home: Path, segment: SegmentFile, position: int, offset: int) -> Unflushed:
    """Compare one log with the journal. Raises PromiseError, OSError."""
    key = (segment.number or 0, hash_log_id(PromiseFile.open(OsDisk(), home).log_id))
    records = journal.known_ends.get(key, 0) - offset
    if records <= 0:
        return Unflushed(segment, position, offset)
    batches = [each for each in journal.take(*key, "").batches if each.base_offset >= offset and each.data]
    return Unflushed(segment, position, offset, records, len(batches), sum(len(each.data) for each in batches))


def _journal(directory: Path) -> HistoryBuilder:
    """Read all files of a journal. Raises OSError."""
    history = HistoryBuilder()
    for file in sorted(directory.glob("*.journal")):
        for frame in scan_frames(file.read_bytes(), int(file.stem)).frames:
            for entry in entries_of(frame):
                if entry.kind != START:
                    history.add(entry, file, "")
    return history


def _end(segment: SegmentFile) -> tuple[int, int]:
    """(bytes of whole batches, offset after the last of them)."""
    with FileBytes(segment.path) as source:
        place, end = 0, segment.base_offset
        for position, size in whole_batches(source):
            header = bytes(source.read(position, 27))
            place = position + size
            end = int.from_bytes(header[:8], "big") + int.from_bytes(header[_LAST_DELTA], "big") + 1
    return place, end
