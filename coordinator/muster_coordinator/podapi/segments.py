"""GET /v1/segments: the committed part of a pod's logs (`pod.routes.segments`)."""

from __future__ import annotations

from muster_coordinator.podapi.fields import Answer


class SegmentEntry(Answer, frozen=True):
    """A segment of a log. `size`: its committed bytes."""

    base_offset: int
    size: int


class PartitionEntry(Answer, frozen=True):
    """`commit_point`: offset after the last committed record; `epochs`: (leader epoch, its first offset).
    `leader_epoch`: the one in which this pod leads, so that its commit point is no older one; -1: it does not.
    """

    partition: int
    log_id: str
    commit_point: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[SegmentEntry, ...]
    leader_epoch: int = -1


class SegmentsAnswer(Answer, frozen=True):
    """`unserved`: partitions that are here, and whose commit point the pod does not know yet."""

    partitions: tuple[PartitionEntry, ...]
    unserved: tuple[int, ...] = ()
