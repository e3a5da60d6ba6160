"""Statuses of partitions that are recorded in the ledger of their topic and not on their objects yet. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState
from muster_operator.kube.cache import Name
from muster_operator.kube.ledger import Issued
from muster_operator.kube.objects import version_of_object

__all__ = ["Ahead", "issued_by", "only_issues"]


def issued_by(status: OffsetsPartitionStatus) -> Issued:
    """What the ledger says of a partition with this status."""
    return Issued(status.epoch, status.leader or "")


def only_issues(before: OffsetsPartitionStatus, after: OffsetsPartitionStatus) -> bool:
    """An epoch is issued to a pod, of the same set: the ledger alone has all that must be known before the call."""
    if not before.replicas or after.leader is None or after.state is not PartitionState.ELECTING:
        return False
    issued = replace(before, leader=after.leader, epoch=after.epoch, state=after.state, reason=after.reason)
    told = replace(issued, conditions=after.conditions, last_transition_time=after.last_transition_time)
    return after.epoch > before.epoch and told == after


@dataclass(frozen=True, slots=True)
class _Record:
    base: OffsetsPartitionStatus
    status: OffsetsPartitionStatus
    number: int
    since: float


class Ahead:
    """By object. `now`: monotonic seconds. What is observed of such a partition has a version of its own: that of the
    object, "+" and a number."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._records: dict[Name, _Record] = {}
        self._numbers = itertools.count(1)

    def view(self, name: Name, partition: OffsetsPartition, entry: Issued | None) -> OffsetsPartition:
        """What is observed of an object as the API server has it, when its ledger's entry is `entry`.

        A record that was made on another status than the object has now is void; what the ledger says is not.
        """
        record, status = self._records.get(name), partition.status
        if record is not None and record.base == status and issued_by(record.status) == (entry or Issued(-1, "")):
            return _with(partition, record)
        self._records.pop(name, None)
        if entry is None or not status.replicas or entry.epoch < status.epoch or entry == issued_by(status):
            return partition
        ahead = replace(status, leader=entry.pod or None, epoch=entry.epoch, state=PartitionState.ELECTING)
        return self.record(name, partition, ahead)

    def record(self, name: Name, partition: OffsetsPartition, status: OffsetsPartitionStatus) -> OffsetsPartition:
        """`status` is recorded, and `partition`, as it is observed, has another one."""
        self._records[name] = _Record(self.object(name, partition).status, status, next(self._numbers), self._now())
        return _with(partition, self._records[name])

    def object(self, name: Name, partition: OffsetsPartition) -> OffsetsPartition:
        """What the API server has, of a partition as it is observed."""
        record = self._records.get(name)
        meta = replace(partition.metadata, resource_version=version_of_object(partition.metadata))
        return replace(partition, metadata=meta, status=partition.status if record is None else record.base)

    def forget(self, name: Name) -> None:
        """The object is gone."""
        self._records.pop(name, None)

    def since(self, seconds: float) -> list[Name]:
        """Those that have been ahead for so long."""
        now = self._now()
        return [name for name, record in self._records.items() if now - record.since >= seconds]


def _with(partition: OffsetsPartition, record: _Record) -> OffsetsPartition:
    version = f"{version_of_object(partition.metadata)}+{record.number}"
    return replace(partition, metadata=replace(partition.metadata, resource_version=version), status=record.status)
