"""One partition as a plan sees it: its replicas by the record and by the pods, which of them count, which one leads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, Replica
from muster_operator.plan.cluster_facts import ClusterFacts
from muster_operator.plan.observation import Connection, PodView

CAUGHT_UP_RECORDS = 1000
"""A replica that lacks at most this many records counts as caught up: an election sends it the rest in time. Positions
come with events, so they are older than the last commits in any case."""


@dataclass(frozen=True, slots=True)
class Member:
    """One replica of a set. `view`: this log as its pod reported it last; None if the pod does not have it. `nowhere`:
    the record says no pod of it, as after it was taken from another log, and every declared pod answers without it.
    """

    replica: Replica
    pod: PodView | None
    view: ReplicaStatus | None
    nowhere: bool = False

    @property
    def log_id(self) -> str:
        return self.replica.log_id

    @property
    def is_lost(self) -> bool:
        """True if the pod answers without this log: its volume is another one, or lost."""
        return self.pod is not None and self.pod.is_up and self.view is None

    @property
    def counts(self) -> bool:
        """True if the replica can be sealed and counts towards a majority."""
        return self.is_there and self.view is not None and not self.view.rebuilding

    @property
    def is_there(self) -> bool:
        """True if the replica can give what it has of its log, even while it rebuilds the log."""
        return self.pod is not None and self.pod.is_up and self.view is not None and not self.is_damaged

    @property
    def has_lost_data(self) -> bool:
        """True if the replica does not count, and will not by itself while no other replica leads."""
        return self.nowhere or self.is_lost or self.is_damaged or (self.is_there and not self.counts)

    @property
    def is_damaged(self) -> bool:
        return self.view is not None and self.view.is_damaged

    @property
    def trouble(self) -> str:
        """The reason why the replica does not count, as text for people; "" if it counts."""
        pod, view = self.pod, self.view
        if self.nowhere:
            return f"log {self.log_id} is on no pod any more"
        if pod is None:
            return f"pod {self.replica.pod or 'with log ' + self.log_id} does not exist"
        if pod.connection is not Connection.UP:
            return f"pod {pod.name} is {'down' if pod.connection is Connection.DOWN else 'in doubt'}: {pod.detail}"
        if view is None:
            return f"log {self.log_id} is not on pod {pod.name} any more"
        if self.is_damaged:
            return f"pod {pod.name} refuses to serve its log: {view.message}"
        return f"pod {pod.name} rebuilds its log" if view.rebuilding else ""


class PartitionView:
    """One partition whose replicas have log ids. `record`: the object in the store, or what it is about to become."""

    def __init__(self, record: OffsetsPartition, facts: ClusterFacts) -> None:
        self.record = record
        self.index = record.spec.index
        self.facts = facts
        self.logs = tuple(
            (pod, view) for pod in facts.pods.values() if (view := pod.replicas.get(self.index)) is not None
        )
        self.replicas = tuple(self.member(each) for each in record.status.replicas)
        self.previous = tuple(self.member(each) for each in record.status.previous_replicas)
        by_log_id: dict[str, Member] = {}
        for each in (*self.replicas, *self.previous):
            by_log_id.setdefault(each.log_id, each)
        self.members = tuple(by_log_id.values())

    @property
    def status(self) -> OffsetsPartitionStatus:
        return self.record.status

    def with_status(self, status: OffsetsPartitionStatus) -> PartitionView:
        """The same partition with this status in place of the recorded one."""
        return self if status == self.status else PartitionView(replace(self.record, status=status), self.facts)

    def on_present_pods(self) -> PartitionView:
        """The same partition with each replica on the pod that has its log now. The image tells pods where the others
        are, so a replica that is recorded on no pod could not be elected.
        """
        replicas, previous = (tuple(each.replica for each in those) for those in (self.replicas, self.previous))
        return self.with_status(replace(self.status, replicas=replicas, previous_replicas=previous))

    def member(self, replica: Replica) -> Member:
        """The replica where its log is now: on the recorded pod, or else on the pod that has the log."""
        pod = self.facts.pods.get(replica.pod)
        view = pod.replicas.get(self.index) if pod is not None else None
        if view is not None and view.log_id == replica.log_id:
            return Member(replica, pod, view)
        if holders := self._holders(replica):
            pod, view = holders[0]
            return Member(Replica(pod.name, replica.log_id), pod, view)
        return Member(replica, pod, None, nowhere=not replica.pod and self.facts.all_answer)

    def located(self, log_id: str) -> Replica:
        """The replica with this log id, which a log may name and the record not, and the pod that has it; "": none."""
        known = next((each.replica for each in self.members if each.log_id == log_id), Replica("", log_id))
        return self.member(known).replica

    def _holders(self, replica: Replica) -> Sequence[tuple[PodView, ReplicaStatus]]:
        """The pods that answer and have this log. A partition with one replica waits for the pod that its record names
        instead, if it names one.
        """
        if not replica.log_id or (replica.pod and self.facts.replication_factor == 1):
            return ()
        return [(pod, view) for pod, view in self.logs if view.log_id == replica.log_id and pod.is_up]

    @property
    def doubled(self) -> str:
        """Names of the pods that have the same log, if that is one of the sets; "" if every log id is unique."""
        return self.on_several_pods(each.log_id for each in self.members)

    def on_several_pods(self, logs: Iterable[str]) -> str:
        """Names of the pods that have the same log of these; "" if each is on one at most."""
        if len({view.log_id for _, view in self.logs}) == len(self.logs):
            return ""
        for log_id in logs:
            holders = [pod.name for pod, view in self.logs if pod.is_up and view.log_id == log_id]
            if log_id and len(holders) > 1:
                return ", ".join(holders)
        return ""

    def leader(self) -> tuple[PodView, ReplicaStatus] | None:
        """The pod that answers and leads, or is about to, in the highest epoch, even if no record names it."""
        found = [(pod, view) for pod, view in self.logs if pod.is_up and view.leads]
        return max(found, key=lambda each: (each[1].leader_epoch, each[1].is_active), default=None)

    @property
    def was_never_led(self) -> bool:
        """True if neither the record names a leader's epoch, nor any log has a record.

        An election that died between its promise and its first record leaves promises and empty logs. The call names
        the recorded set, which is the only set that any bootstrap of this partition ever names.
        """
        if self.status.high_watermark is not None or self.status.led_epoch >= 0:
            return False
        return all(each.view is None or each.view.log_end_offset == 0 for each in self.members)

    def highest_epoch(self) -> int:
        """The highest epoch that the record names or that any replica has promised."""
        return max([self.status.epoch, *(view.epoch for _, view in self.logs)])

    @property
    def last_led_epoch(self) -> int:
        """The epoch of the latest history: the highest in which a leader was active by the record, or that a log has a
        record of; 0 if none is known. After etcd was restored, logs know of later leaders than the record.
        """
        return max([0, self.status.led_epoch, *(view.last_epoch for _, view in self.logs)])

    @property
    def is_opening(self) -> bool:
        """True if a pod has a log that it has not opened yet, so that the end of its history is not known."""
        return any(pod.is_up and not view.is_damaged and view.log_end_offset < 0 for pod, view in self.logs)

    def is_gone(self, name: str) -> bool:
        """True if a pod counts as dead. That the operator does not hear it is not enough: most of the other replicas
        must have lost it too. A silent node counts as one witness like a replica; alone, the node may be cut off.
        """
        pod = self.facts.pods.get(name)
        if pod is None or pod.connection is Connection.DOWN:
            return True
        if pod.connection is not Connection.SUSPECT:
            return False
        others = [each.pod for each in self.members if each.replica.pod != name]
        lost = sum(each is not None and each.is_up and name in each.lost_peers for each in others) + pod.node_lost
        return not others or 2 * lost > len(others)

    def lacks_majority(self, *, hoped: bool = False) -> bool:
        """True if one of the sets has no majority. `hoped`: a pod whose stream ended a moment ago counts as alive."""

        def counted(each: Member) -> bool:
            unsure = each.pod is not None and each.pod.connection is Connection.UNSURE
            return each.counts or (hoped and unsure)

        sets = [each for each in (self.replicas, self.previous) if each]
        return any(2 * sum(map(counted, each)) <= len(each) for each in sets)


def log_ids(replicas: Iterable[Replica]) -> tuple[str, ...]:
    return tuple(each.log_id for each in replicas)


def is_caught_up(leader: ReplicaStatus, log_id: str) -> bool:
    """True if the leader reports that the replica with this log id lacks at most `CAUGHT_UP_RECORDS` records."""
    position = leader.follower(log_id)
    if position is None or position.rebuilding or position.end_offset < 0:
        return False
    return position.end_offset >= leader.log_end_offset - CAUGHT_UP_RECORDS
