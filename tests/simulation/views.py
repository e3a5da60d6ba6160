"""What an operator knows of a pod: its last status, and how long it has been silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.pod import Pod
from tests.simulation.replica import Replica
from tests.simulation.world import World

from muster_coordinator.podapi.models import FollowerStatus, ReplicaStatus
from muster_coordinator.states import FailureReason, ReplicaRole, ShardState
from muster_operator.plan.observation import Connection, PodView

__all__ = ["PodMemory"]

UNSURE_MS = 400
SUSPECT_MS = 1_000


class PodMemory:
    """Of one operator and pod."""

    def __init__(self, pod: Pod, world: World) -> None:
        self._pod = pod
        self._world = world
        self._heard_ms = -SUSPECT_MS
        self._refused = False
        self._since_ms = world.now_ms
        self._view = PodView(pod.name, int(pod.name.rpartition("-")[2]), Connection.SUSPECT, f"{pod.name}:1")

    def poll(self, operator: str, is_alive: Callable[[], bool]) -> None:
        """Ask for the status; it comes, or a refusal does, or nothing."""
        pod, world = self._pod, self._world

        def answer() -> None:
            if pod.up and world.now_ms < pod.frozen_until:
                return
            view = status_of(pod) if pod.up else None
            world.send(pod.name, operator, lambda: self._take(view) if is_alive() else None)

        world.send(operator, pod.name, answer)

    def _take(self, view: PodView | None) -> None:
        if (view is None) is not self._refused:
            self._since_ms = self._world.now_ms
        self._refused = view is None
        if view is not None:
            self._view = view
        self._heard_ms = self._world.now_ms

    def view(self) -> PodView:
        silent_ms = self._world.now_ms - self._heard_ms
        if silent_ms >= SUSPECT_MS:
            connection = Connection.SUSPECT
        elif self._refused:
            connection = Connection.DOWN
        else:
            connection = Connection.UNSURE if silent_ms >= UNSURE_MS else Connection.UP
        steady_s = (self._world.now_ms - self._since_ms) / 1000
        return with_connection(self._view, connection, steady_s)


def with_connection(view: PodView, connection: Connection, steady_s: float) -> PodView:
    return replace(view, connection=connection, steady_s=steady_s, detail=connection.value)


def status_of(pod: Pod) -> PodView:
    """As the pod itself says."""
    for replica in pod.replicas:
        replica.running.operator_heard(pod.now_ms())
    return PodView(
        pod.name,
        int(pod.name.rpartition("-")[2]),
        Connection.UP,
        f"{pod.name}:1",
        ready=True,
        image=pod.image,
        replicas={replica.partition.index: _replica_view(replica) for replica in pod.replicas},
        peer_address=f"{pod.name}:2",
        lost_peers=frozenset(_lost_peers(pod)),
        uid=pod.name,
    )


def _lost_peers(pod: Pod) -> list[str]:
    """Pods that it does not hear at this moment."""
    now = pod.world.now_ms
    return [
        other.name
        for other in pod.peers
        if not other.up or now < other.frozen_until or pod.world.blocked.get((other.name, pod.name), -1) > now
    ]


def _replica_view(replica: Replica) -> ReplicaStatus:
    core = replica.running
    leads = core.leading_epoch
    if leads < 0 and core.is_electing:
        leads = core.promise.epoch
    state = ShardState.ACTIVE if core.is_active else ShardState.LOADING if leads >= 0 else ShardState.INITIAL
    if leads < 0 and replica.pod.cannot_write:
        state = ShardState.FAILED
    sets = core.log.sets
    follows = core.live_leader if leads < 0 else ""
    return ReplicaStatus(
        replica.partition.index,
        state,
        ReplicaRole.LEADER if leads >= 0 else ReplicaRole.FOLLOWER if follows else ReplicaRole.NONE,
        core.promise.epoch,
        leads,
        core.log_id,
        core.log.end > 0 or core.promise.rebuilding,
        core.log.end,
        core.commit_point,
        reason=FailureReason.CANNOT_WRITE if state is ShardState.FAILED else "",
        message=replica.pod.cannot_write,
        leader=follows,
        replicas=sets.replicas if sets is not None else (),
        previous_replicas=sets.previous_replicas if sets is not None else (),
        sets_committed=sets is not None and core.commit_point > core.log.sets_offset,
        rebuilding=core.promise.rebuilding,
        needs_higher_epoch=core.needs_higher_epoch,
        followers=tuple(FollowerStatus(*follower) for follower in core.followers),
        last_epoch=core.log.last_epoch,
    )
