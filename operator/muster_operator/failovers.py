"""Times without a leader, for the status of the cluster and for metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from muster_operator.api.conditions import PLANNED
from muster_operator.api.durations import format_time
from muster_operator.api.models import FailoverRecord, OffsetsPartition, PartitionState
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.actions import Action, WritePartitionStatus

KEPT = 20
"""Failovers that are remembered; the status of a cluster shows no more."""


class _Loss(NamedTuple):
    at: float
    leader: str | None
    planned: bool


class Failovers:
    """The failovers of one cluster that this operator has seen. `records`: newest first."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        self.records: deque[FailoverRecord] = deque(maxlen=KEPT)
        self._metrics = metrics
        self._lost: dict[str, _Loss] = {}
        self._counted: dict[str, int] = {}  # the epoch of the last failover, by partition

    def follow(
        self, partitions: Sequence[OffsetsPartition], actions: Sequence[Action], now: float, wall: float
    ) -> None:
        """Compare what each partition shows with what a plan decided. `now`: monotonic seconds; `wall`: since 1970."""
        todo = {each.seen.metadata.name: each for each in actions if isinstance(each, WritePartitionStatus)}
        for name, each in todo.items():
            before, after = each.seen.status, each.status
            if after.state is PartitionState.LED:
                self._end(each, now, wall)
            elif before.state is PartitionState.LED:
                self._lost.setdefault(name, _Loss(now, before.leader, after.reason in PLANNED))
        for partition in partitions if self._lost else ():
            if partition.metadata.name not in todo and partition.status.state is PartitionState.LED:
                self._lost.pop(partition.metadata.name, None)  # its leader was back before the loss was shown

    def _end(self, action: WritePartitionStatus, now: float, wall: float) -> None:
        name, before, after = action.seen.metadata.name, action.seen.status, action.status
        lost = self._lost.pop(name, _Loss(now, before.leader, planned=False))
        if before.led_epoch < 0 or before.led_epoch == after.epoch or self._counted.get(name) == after.epoch:
            return  # the first election, the same leader after all, or a plan before this one has seen it
        self._counted[name] = after.epoch
        gap_s = now - lost.at
        self._metrics.failover_seconds.labels("planned" if lost.planned else "lost").observe(gap_s)
        self.records.appendleft(
            FailoverRecord(
                partition=name,
                epoch=after.epoch,
                time=format_time(wall),
                previous_leader=lost.leader,
                leader=after.leader,
                reason=after.reason,
                planned=lost.planned,
                duration_ms=round(gap_s * 1000),
            )
        )
