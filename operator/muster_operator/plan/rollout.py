"""Restarting pods that run an older template than is declared: one at a time, leaders first moved elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_operator.api.models import OffsetsPartitionStatus, PartitionState
from muster_operator.plan.actions import RestartPod
from muster_operator.plan.observation import RESTART, Connection, Observation, PodView
from muster_operator.plan.standing import Scene

__all__ = ["next_to_restart", "restart"]


def next_to_restart(seen: Observation, steady_s: float) -> str:
    """The outdated pod whose turn it is, highest ordinal first as a StatefulSet does; "" while any pod is missing, or
    has been up for less than `steady_s`: its replicas shall be warm before they lead what the next one gives up.
    """
    assert seen.cluster is not None
    if len(seen.pods) < seen.cluster.spec.pods:
        return ""
    if not all(pod.is_up and not pod.draining and pod.steady_s >= steady_s for pod in seen.pods):
        return ""
    outdated = [pod for pod in seen.pods if pod.outdated]
    return max(outdated, key=lambda pod: pod.node_id).name if outdated else ""


def restart(seen: Observation, scene: Scene, statuses: Mapping[int, OffsetsPartitionStatus]) -> Iterator[RestartPod]:
    """When every partition is led and fully followed, and the pod leads nothing that another one could lead.

    A pod that is down has nothing to lose: it may be the older template that does not let it come up.
    """
    for pod in seen.pods:
        if (
            pod.outdated
            and pod.connection is Connection.DOWN
            and not pod.draining
            and (RESTART, pod.name) not in seen.busy
        ):
            yield RestartPod(pod.name, pod.uid)
            return
    if not scene.emptying or (RESTART, scene.emptying) in seen.busy:
        return
    pod = scene.pods[scene.emptying]
    if all(_is_whole(status) and not _is_to_move(status, pod) for status in statuses.values()):
        yield RestartPod(pod.name, pod.uid)


def _is_whole(status: OffsetsPartitionStatus) -> bool:
    settled = not status.previous_replicas and not status.learners
    return status.state is PartitionState.LED and settled and status.following == len(status.replicas)


def _is_to_move(status: OffsetsPartitionStatus, pod: PodView) -> bool:
    return status.leader == pod.name and len(status.replicas) > 1
