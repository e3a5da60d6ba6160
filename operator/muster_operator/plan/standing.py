"""The replicas of one partition, as the record names them and pods show them: who is there, who counts, who leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter

from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, Replica
from muster_operator.plan.observation import Connection, PodView

__all__ = ["Member", "Scene", "Standing", "Tally", "log_ids"]

CAUGHT_UP_RECORDS = 1000
"""So far behind, and a replica still counts as caught up: it is sent the rest within the time of an election. Positions
come with events and are older than the last commits in any case."""


_flags_of = attrgetter(
    *(
        each.name
        for each in fields(PodView)
        if each.name not in ("replicas", "image", "ready", "steady_s", "lost_peers")
    )
)
"""What decisions may look at in any pod, next to its replica of the partition and to how long it has been there."""


@dataclass(slots=True)
class Tally:
    """What the decisions of one plan count together: one of them finds taken what another one took.

    `led` counts the partitions that each pod leads, or is about to, so that a failover of many partitions spreads them;
    `held` the replicas. `moves` and `changes`: how many more elections that interrupt a leader that lives, and changes
    of sets, may begin.
    """

    moves: int = 0
    changes: int = 0
    led: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Scene:
    """What the decisions of one plan share. `emptying`: the pod that a rollout is to restart next; "" if there is none.
    `count` makes the tally, when the first decision asks for it.
    """

    pods: Mapping[str, PodView]
    replication_factor: int
    declared: int
    rebalance_after_s: float = 0.0
    replace_after_s: float = 0.0
    emptying: str = ""
    count: Callable[[], Tally] = Tally
    depends_on_others: bool = False
    """A decision has asked for the tally since this was set to False."""
    _tally: Tally | None = None

    @property
    def tally(self) -> Tally:
        self.depends_on_others = True
        if self._tally is None:
            self._tally = self.count()
        return self._tally

    def facts(self) -> tuple[object, ...]:
        """All that a decision which does not ask for the tally can depend on, but for the partition, its logs and its
        attempt. Equal for two plans between which nothing of it has changed.
        """
        pods = tuple((_flags_of(pod), self.is_young(pod), self.is_away_for_long(pod)) for pod in self.pods.values())
        bounds = (self.rebalance_after_s, self.replace_after_s)
        # Peers are asked only of a pod that is silent. Of one that died they tell one after the other, while elections
        # are to be called: nothing is decided anew for that.
        silent = any(pod.connection is Connection.SUSPECT for pod in self.pods.values())
        witnesses = tuple(pod.lost_peers for pod in self.pods.values()) if silent else ()
        return (pods, self.replication_factor, self.declared, bounds, self.emptying, witnesses)

    def shall_leave(self, pod: PodView) -> bool:
        """Its leaders shall go elsewhere, if somebody else can lead."""
        return pod.cordoned or self.is_leaving(pod)

    def is_young(self, pod: PodView | None) -> bool:
        """It has just come up: its replicas may still load, and a warm one leads sooner."""
        return pod is not None and pod.steady_s < self.rebalance_after_s

    @property
    def is_restless(self) -> bool:
        """A pod is missing, about to go, or has just come or gone."""
        pods = self.pods.values()
        return len(pods) < self.declared or any(pod.outdated or pod.draining or self.is_young(pod) for pod in pods)

    def is_away_for_long(self, pod: PodView) -> bool:
        """It does not come back: its replicas are made elsewhere."""
        return not pod.is_up and 0 < self.replace_after_s <= pod.steady_s

    def is_leaving(self, pod: PodView) -> bool:
        """It shall lead nothing, and is elected for nothing."""
        return pod.draining or pod.name == self.emptying


@dataclass(frozen=True, slots=True)
class Member:
    """One replica of a set. `view`: this very log, as its pod showed it last; None if it is not there."""

    replica: Replica
    pod: PodView | None
    view: ReplicaStatus | None

    @property
    def log_id(self) -> str:
        return self.replica.log_id

    @property
    def is_lost(self) -> bool:
        """Its pod answers, and does not have the log: another volume, or none."""
        return self.pod is not None and self.pod.is_up and self.view is None

    @property
    def counts(self) -> bool:
        """It can be sealed, and counted."""
        view = self.view
        if self.pod is None or view is None or not self.pod.is_up:
            return False
        return not view.rebuilding and not self.is_damaged

    @property
    def is_there(self) -> bool:
        """It can be asked for what is left of its log, even if that is being rebuilt."""
        return self.pod is not None and self.pod.is_up and self.view is not None and not self.is_damaged

    @property
    def is_damaged(self) -> bool:
        return self.view is not None and self.view.is_damaged

    @property
    def trouble(self) -> str:
        """Why it does not count, for people; "" if it does."""
        pod, view = self.pod, self.view
        if pod is None:
            return f"pod {self.replica.pod or 'with log ' + self.log_id} does not exist"
        if pod.connection is not Connection.UP:
            return f"pod {pod.name} is {'down' if pod.connection is Connection.DOWN else 'in doubt'}: {pod.detail}"
        if view is None:
            return f"log {self.log_id} is not on pod {pod.name} any more"
        if self.is_damaged:
            return f"pod {pod.name} refuses to serve its log: {view.message}"
        return f"pod {pod.name} rebuilds its log" if view.rebuilding else ""


class Standing:
    """Of one partition whose replicas have log ids."""

    def __init__(self, partition: OffsetsPartition, scene: Scene) -> None:
        self.partition = partition
        self.index = partition.spec.index
        self.scene = scene
        self.logs = tuple(
            (pod, view) for pod in scene.pods.values() if (view := pod.replicas.get(self.index)) is not None
        )
        status = partition.status
        self.replicas = tuple(self.member(each) for each in status.replicas)
        self.previous = tuple(self.member(each) for each in status.previous_replicas)
        known: dict[str, Member] = {}
        for each in (*self.replicas, *self.previous):
            known.setdefault(each.log_id, each)
        self.members = tuple(known.values())

    @property
    def status(self) -> OffsetsPartitionStatus:
        return self.partition.status

    def member(self, replica: Replica) -> Member:
        """Where the log is now: on the recorded pod, or else on the one that has it."""
        pod = self.scene.pods.get(replica.pod)
        view = pod.replicas.get(self.index) if pod is not None else None
        if view is not None and view.log_id == replica.log_id:
            return Member(replica, pod, view)
        if holders := self._holders(replica.log_id):
            pod, view = holders[0]
            return Member(Replica(pod.name, replica.log_id), pod, view)
        return Member(replica, pod, None)

    def _holders(self, log_id: str) -> Sequence[tuple[PodView, ReplicaStatus]]:
        """Of the pods that answer, those that have this log. A partition with one replica waits for its pod."""
        if not log_id or self.scene.replication_factor == 1:
            return ()
        return [(pod, view) for pod, view in self.logs if view.log_id == log_id and pod.is_up]

    @property
    def doubled(self) -> str:
        """Pods that have a log with one and the same id; "" if there are none."""
        if len({view.log_id for _, view in self.logs}) == len(self.logs):
            return ""
        for each in self.members:
            holders = self._holders(each.log_id)
            if len(holders) > 1:
                return ", ".join(pod.name for pod, _ in holders)
        return ""

    def leader(self) -> tuple[PodView, ReplicaStatus] | None:
        """Who leads, or is about to, in the highest epoch, of the pods that answer. Also one that no record names."""
        found = [(pod, view) for pod, view in self.logs if pod.is_up and view.leads]
        return max(found, key=lambda each: (each[1].leader_epoch, each[1].is_active), default=None)

    def highest_epoch(self) -> int:
        """Of the record, and of everything that any replica was seen to have promised."""
        return max([self.status.epoch, *(view.epoch for _, view in self.logs)])

    def is_gone(self, name: str) -> bool:
        """Whether a pod counts as dead. Silence alone is none: most of the other replicas must have lost it too. When
        nothing is heard of the pod's node, that is a witness like one of them; alone it may be what is cut off.
        """
        pod = self.scene.pods.get(name)
        if pod is None or pod.connection is Connection.DOWN:
            return True
        if pod.connection is not Connection.SUSPECT:
            return False
        others = [each.pod for each in self.members if each.replica.pod != name]
        lost = sum(each is not None and each.is_up and name in each.lost_peers for each in others) + pod.node_lost
        return not others or 2 * lost > len(others)

    def lacks_majority(self, *, hoped: bool = False) -> bool:
        """Of any of the sets. `hoped`: pods whose stream was closed a moment ago are taken for alive."""

        def counted(each: Member) -> bool:
            unsure = each.pod is not None and each.pod.connection is Connection.UNSURE
            return each.counts or (hoped and unsure)

        sets = [each for each in (self.replicas, self.previous) if each]
        return any(2 * sum(map(counted, each)) <= len(each) for each in sets)


def log_ids(replicas: Iterable[Replica]) -> tuple[str, ...]:
    return tuple(each.log_id for each in replicas)


def is_caught_up(leader: ReplicaStatus, log_id: str) -> bool:
    """By the leader's own view of it."""
    position = leader.follower(log_id)
    if position is None or position.rebuilding or position.end_offset < 0:
        return False
    return position.end_offset >= leader.log_end_offset - CAUGHT_UP_RECORDS
