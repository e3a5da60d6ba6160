"""Verifies that the new logs say the same as the old ones: reads both from the disk, record by record.

Per group a running digest over (key, value, timestamp) of its records in order, once over the old logs and once over
the new ones. The new logs are also checked for what the old ones need not be: each group in the partition of its hash,
offsets without holes, one epoch, no damage, no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.decoder import Decoder, Stretch
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.decode.structure import CONTROL, TRANSACTIONAL
from muster_pipeline.reshard.route import Carried, Fates, Router
from muster_pipeline.reshard.writer import LEADER_EPOCH, log_directory
from muster_pipeline.source.files import find_segments
from muster_pipeline.source.topics import OFFSETS_TOPIC

_NO_TRANSACTIONS = Fates({})


class VerificationError(PipelineError):
    """The new logs differ from the old ones."""


def verify(
    old: Iterable[tuple[int, Stretch, Fates]],
    root: Path,
    partitions: int,
    total: int,
    progress: Callable[[str, int, int], None] | None,
    topic: str = OFFSETS_TOPIC,
) -> int:
    """Compare old and new logs; return the number of groups, or of transactional ids. `total`: bytes of the old logs.
    Raises VerificationError, SegmentReadError.
    """
    expected: dict[str, int] = {}
    router, done = Router(partitions), 0
    for _, stretch, fates in old:
        _digest(router.carried(stretch, fates), expected)
        done += stretch.end - stretch.origin.position
        if progress is not None:
            progress("verifying: old logs", done, total)
    found: dict[str, int] = {}
    logs = [str(log_directory(root, number, topic)) for number in range(partitions)]
    segments = [each for log in logs for each in find_segments([log], (topic,))]
    total, done = sum(Path(each.path).stat().st_size for each in segments), 0
    ends = dict.fromkeys(range(partitions), 0)
    for segment in segments:
        assert segment.partition is not None
        with FileBytes(segment.path) as source:
            for stretch in Decoder().stretches(source, segment.origin()):
                ends[segment.partition] = _check(stretch, ends[segment.partition], segment.path)
                carried = router.carried(stretch, _NO_TRANSACTIONS)
                if (carried.target != segment.partition).any():
                    raise VerificationError(f"{segment.path} holds records of another partition")
                _digest(carried, found)
                done += stretch.end - stretch.origin.position
                if progress is not None:
                    progress("verifying: new logs", done, total)
    if expected != found:
        group = min(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise VerificationError(f"{group!r} does not have the same records in the new logs")
    return len(expected)


def _check(stretch: Stretch, end: int, file: str) -> int:
    """Check a stretch and return the offset after it."""
    window = stretch.window
    if stretch.damages:
        raise VerificationError(f"{file}: {stretch.damages[0].detail}")
    offsets = window.records.offset
    if not np.array_equal(offsets, np.arange(end, end + len(offsets))):
        raise VerificationError(f"{file}: offsets are not dense from {end} on")
    if (window.headers["leader_epoch"] != LEADER_EPOCH).any():
        raise VerificationError(f"{file}: a batch of another leader epoch than {LEADER_EPOCH}")
    if (window.headers["attributes"] & (TRANSACTIONAL | CONTROL) != 0).any():
        raise VerificationError(f"{file}: a transaction or a control record")
    return end + len(offsets)


def _digest(carried: Carried, digests: dict[str, int]) -> None:
    data = carried.data
    names = carried.groups
    state = [digests.get(name, 0) for name in names]
    columns = (carried.group, carried.timestamp_ms, carried.start, carried.end)
    for group, time, start, end in zip(*(column.tolist() for column in columns), strict=True):
        state[group] = hash((state[group], time, data[start:end]))
    digests.update(zip(names, state, strict=True))
