"""GET /v1/mirror: how far a pod has mirrored the partitions of the upstream cluster that it follows."""

from __future__ import annotations

from muster_coordinator.podapi.fields import Answer


class MirroredPartition(Answer, frozen=True):
    """`position`: offset of the next record to read, -1: it has not begun. `upstream_end`: the high watermark that a
    broker last told, -1: none has. `lag`: records between them, -1: not known. `complete`: all was read once, so reads
    are answered. `records`: appended, `read_again`: how often all was read again, both since this pod leads it.
    `problem`: why nothing is read now; "" if nothing is wrong.
    """

    partition: int
    position: int
    upstream_end: int
    lag: int
    complete: bool
    records: int
    read_again: int
    problem: str


class MirrorAnswer(Answer, frozen=True):
    """`problem`: of all partitions, such as an upstream that does not answer."""

    upstream: str
    problem: str
    partitions: tuple[MirroredPartition, ...]
