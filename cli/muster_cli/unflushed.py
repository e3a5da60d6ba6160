"""What of a pod's logs only its journal has: a pod that did not end in order leaves its newest batches there (ADR 1).

Whoever copies or rewrites its segments would lose acknowledged offsets without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from muster_cli.errors import CliError
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.history import HistoryBuilder
from muster_coordinator.log.journal_format import START, entries_of, hash_log_id, scan_frames
from muster_coordinator.replication.promise import PROMISE_NAME, PromiseError, PromiseFile
from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.source.files import SegmentFile, whole_batches

__all__ = ["refuse_unflushed"]

_LAST_DELTA = slice(23, 27)


def refuse_unflushed(segments: Iterable[SegmentFile]) -> None:
    """Raises CliError: a segment is of a pod whose journal holds more of that log. Blocks."""
    logs: dict[Path, SegmentFile] = {}
    for each in segments:
        home = Path(each.log)
        if (home.parent / "journal").is_dir() and (home / PROMISE_NAME).exists():
            logs[home] = max(each, logs.get(home, each), key=lambda one: one.base_offset)
    ends = {pod: _journaled_ends(pod / "journal") for pod in {home.parent for home in logs}}
    for home, last in logs.items():
        try:
            log_hash = hash_log_id(PromiseFile.open(OsDisk(), home).log_id)
        except PromiseError as error:
            raise CliError(f"{home}: cannot tell whether its journal holds more of it: {error}") from error
        missing = ends[home.parent].get((last.offsets_partition or 0, log_hash), 0) - _end_offset(last)
        if missing > 0:
            raise CliError(
                f"{home}: {missing} records are in the pod's journal only, because the pod did not end in order. "
                "Start it and stop it in order first"
            )


def _journaled_ends(journal: Path) -> dict[tuple[int, int], int]:
    """(partition, hash of the log id) -> end of that log as far as the journal knows."""
    history = HistoryBuilder()
    for file in sorted(journal.glob("*.journal")):
        for frame in scan_frames(file.read_bytes(), int(file.stem)).frames:
            for entry in entries_of(frame):
                if entry.kind != START:
                    history.add(entry, file, "")
    return history.known_ends


def _end_offset(segment: SegmentFile) -> int:
    with FileBytes(segment.path) as source:
        end = segment.base_offset
        for position, _ in whole_batches(source):
            header = bytes(source.read(position, 27))
            end = int.from_bytes(header[:8], "big") + int.from_bytes(header[_LAST_DELTA], "big") + 1
    return end
