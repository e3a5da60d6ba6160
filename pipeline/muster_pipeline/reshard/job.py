"""Re-shard an offsets or a transaction topic: plan, write, verify, and go on where a killed run stopped.

Everything is written to `<output>.partial`, which becomes `<output>` by one rename when it is complete and
verified. Every 64 MiB of input the new segments are synced and `reshard.json` says how far they go; the next run cuts
back what lies behind that and continues, and its output is, byte for byte, that of a run that was never interrupted.
The source is only read, up to the sizes that its files had at the start.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.decoder import Decoder, Stretch
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.reshard.route import Carried, Fates, Router, read_fates
from muster_pipeline.reshard.transactions import refuse_open_transactions, refuse_transaction_topic
from muster_pipeline.reshard.verify import verify
from muster_pipeline.reshard.writer import TargetLog, log_directory, sync_path
from muster_pipeline.source.files import InputError, SegmentFile, find_segments
from muster_pipeline.source.topics import OFFSETS_TOPIC

STATE_NAME = "reshard.json"
CHECKPOINT_BYTES = 64 << 20
DEFAULT_SEGMENT_BYTES = 100 << 20
"""Kafka's offsets.topic.segment.bytes."""
_VERSION = 1
_NAMED = 3
DECODER = Decoder()

Progress = Callable[[str, int, int], None]
"""(what, bytes done, bytes in all)."""


class ReshardError(PipelineError):
    """It cannot be done, or was not done right; nothing is at the output then."""


@dataclass
class Summary:
    """`counts`: rows of the source by kind; `records` that each new partition has, `groups` (or transactional ids) in
    all."""

    partitions: int
    groups: int
    counts: dict[str, int]
    records: list[int]
    verified: bool = False
    topic: str = OFFSETS_TOPIC


@dataclass
class _Source:
    """The segments of the old logs, with the sizes that count."""

    segments: list[SegmentFile]
    sizes: dict[str, int]
    fingerprint: list[list[Any]]
    fates: dict[int, Fates] = field(default_factory=dict)  # by the index of a log's first segment

    @classmethod
    def find(cls, paths: Sequence[str], topic: str = OFFSETS_TOPIC) -> _Source:
        if topic == OFFSETS_TOPIC:
            refuse_transaction_topic(paths)
            refuse_open_transactions(paths)
        segments = find_segments(paths, (topic,))
        unnamed = [each.path for each in segments if each.partition is None]
        if unnamed:
            raise InputError(f"{unnamed[0]} lies in no directory {topic}-N")
        segments.sort(key=lambda each: (each.partition, each.base_offset))
        try:
            stats = {each.path: os.stat(each.path) for each in segments}
        except OSError as exc:
            raise InputError(f"{exc.filename}: {exc.strerror}") from exc
        fingerprint: list[list[Any]] = [[path, stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()]
        return cls(segments, {path: stat.st_size for path, stat in stats.items()}, fingerprint)

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    def stretches(self, position: tuple[int, int] = (0, 0)) -> Iterator[tuple[int, Stretch, Fates]]:
        """(index of the segment, stretch, how its log's transactions ended) behind `position`: (index of a segment,
        byte).
        """
        index = 0
        for _, group in groupby(self.segments, key=lambda each: each.partition):
            log = list(group)
            if index + len(log) <= position[0]:
                index += len(log)
                continue
            if index not in self.fates:
                self.fates[index] = read_fates(log, self.sizes)
            fates = self.fates[index]
            for segment in log:
                if index >= position[0]:
                    start = position[1] if index == position[0] else 0
                    with FileBytes(segment.path) as source:
                        for each in DECODER.stretches(source, segment.origin(start), self.sizes[segment.path]):
                            yield index, each, fates
                index += 1


@dataclass
class _State:
    """The contents of `reshard.json` while a run is under way."""

    partitions: int
    segment_bytes: int
    leave_out: list[str]
    source: list[list[Any]]
    position: tuple[int, int] = (0, 0)
    targets: list[tuple[int, int, int]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    topic: str = OFFSETS_TOPIC
    version: int = _VERSION


def plan(paths: Sequence[str], partitions: int, progress: Progress | None = None) -> Summary:
    """Return what `reshard` would do, without writing. Raises InputError, SegmentReadError."""
    source, router = _Source.find(paths), Router(partitions)
    records = np.zeros(partitions, np.int64)
    done = 0
    for _, stretch, fates in source.stretches():
        carried = router.carried(stretch, fates)
        records += np.bincount(carried.target, minlength=partitions)
        done += stretch.end - stretch.origin.position
        if progress is not None:
            progress("reading", done, source.total)
    return Summary(partitions, len(router.groups), dict(router.counts), records.tolist())


def reshard(
    paths: Sequence[str],
    output: Path,
    partitions: int,
    *,
    topic: str = OFFSETS_TOPIC,
    leave_out: Sequence[str] = (),
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    progress: Progress | None = None,
) -> Summary:
    """Write the logs of `topic` at `paths` anew as `partitions` partitions, each in `output/<topic>-N`.

    Of the transaction topic that is for partitions whose indexes were never used: an index decides which producer ids a
    partition hands out.

    `leave_out`: of `route.LEFT_OUT_KINDS`, what may be missing in the output. Raises InputError, SegmentReadError;
    ReshardError: something cannot be carried, the source changed since an interrupted run, the output is there
    already, or it does not verify.
    """
    if output.exists():
        raise ReshardError(f"{output} exists already")
    source = _Source.find(paths, topic)
    job = _Job(source, output.with_name(output.name + ".partial"), topic, partitions, segment_bytes, sorted(leave_out))
    try:
        job.begin()
        job.write(progress)
        refused = list(job.router.refused(leave_out))
        if refused:
            told = ", ".join(f"{count} {kind}" for kind, count in refused)
            told += "".join(f"; {each}" for each in _open_transactions(job.router))
            raise ReshardError(f"the logs hold records that cannot be carried over: {told}. See --leave-out")
        groups = verify(source.stretches(), job.root, partitions, source.total, progress, topic)
        records = [target.next_offset for target in job.targets]
        summary = Summary(partitions, groups, dict(job.router.counts), records, verified=True, topic=topic)
        _write_json(job.root / STATE_NAME, asdict(summary))
        sync_path(job.root)
        job.root.rename(output)
        sync_path(output.parent)
    except OSError as exc:
        raise ReshardError(f"{exc.filename or job.root}: {exc.strerror or exc}") from exc
    return summary


def read_summary(output: Path) -> Summary:
    """The summary of a run that has ended. Raises OSError."""
    return Summary(**json.loads((output / STATE_NAME).read_text()))


class _Job:
    def __init__(
        self, source: _Source, root: Path, topic: str, partitions: int, segment_bytes: int, leave_out: Sequence[str]
    ) -> None:
        self.root = root
        self.router = Router(partitions)
        self.targets = [TargetLog(log_directory(root, each, topic), segment_bytes) for each in range(partitions)]
        self._source = source
        self._state = _State(partitions, segment_bytes, list(leave_out), source.fingerprint, topic=topic)

    def begin(self) -> None:
        """A new run, or the place where an interrupted one stopped. Raises ReshardError, OSError."""
        state_file = self.root / STATE_NAME
        if not state_file.exists():
            for target in self.targets:
                target.create()
            self._save((0, 0))
            return
        found = _State(**json.loads(state_file.read_text()))
        for name in ("version", "topic", "partitions", "segment_bytes", "leave_out", "source"):
            if getattr(found, name) != getattr(self._state, name):
                raise ReshardError(f"{self.root} is of an interrupted run with another {name}: remove it to begin anew")
        self._state = found
        self.router.counts = Counter(found.counts)
        for target, (base, size, next_offset) in zip(self.targets, found.targets, strict=True):
            target.base, target.size, target.next_offset = base, size, next_offset
            target.cut_back()

    def write(self, progress: Progress | None) -> None:
        """Carry everything over that is not yet. Raises OSError, SegmentReadError."""
        first = tuple(self._state.position)
        done = sum(self._source.sizes[each.path] for each in self._source.segments[: first[0]]) + first[1]
        unsaved = 0
        for index, stretch, fates in self._source.stretches((first[0], first[1])):
            carried = self.router.carried(stretch, fates)
            self._append(carried)
            size = stretch.end - stretch.origin.position
            done, unsaved = done + size, unsaved + size
            if unsaved >= CHECKPOINT_BYTES:
                self._save((index, stretch.end))
                unsaved = 0
            if progress is not None:
                progress("writing", done, self._source.total)
        self._save((len(self._source.segments), 0))
        for target in self.targets:
            target.finish()

    def _append(self, carried: Carried) -> None:
        order = np.argsort(carried.target, kind="stable")
        used, starts = np.unique(carried.target[order], return_index=True)
        for target, (first, end) in zip(used.tolist(), pairwise([*starts, len(order)]), strict=True):
            self.targets[target].append(carried, order[first:end])

    def _save(self, position: tuple[int, int]) -> None:
        for target in self.targets:
            target.sync()
        self._state.position = position
        self._state.targets = [(each.base, each.size, each.next_offset) for each in self.targets]
        self._state.counts = dict(self.router.counts)
        _write_json(self.root / STATE_NAME, asdict(self._state))


def _open_transactions(router: Router) -> Iterator[str]:
    """Some of them, for people."""
    for producer_id, groups in islice(router.open.items(), _NAMED):
        named = ", ".join(map(repr, sorted(groups)[:_NAMED]))
        yield f"producer {producer_id} has a transaction open with offsets of {named}"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    making = path.with_name(path.name + ".tmp")
    making.write_text(json.dumps(content, indent=1) + "\n")
    sync_path(making)
    making.rename(path)
    sync_path(path.parent)
