"""A rollout: pods with an older template than declared restart one at a time, once their leaders have moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_operator.api.models import OffsetsPartitionStatus, PartitionState
from muster_operator.plan.actions import RestartPod
from muster_operator.plan.cluster_facts import ClusterFacts
from muster_operator.plan.observation import CallKind, Connection, Observation, PodView


def next_to_restart(seen: Observation, steady_s: float) -> str:
    """The outdated pod to restart next, highest ordinal first as a StatefulSet does; "" if there is none.

    Also "" while a pod is missing or has been up for less than `steady_s` seconds: its replicas must be warm before
    they take over what the next pod gives up.
    """
    assert seen.cluster is not None
    if len(seen.pods) < seen.cluster.spec.pods:
        return ""
    if not all(pod.is_up and not pod.draining and pod.steady_s >= steady_s for pod in seen.pods):
        return ""
    outdated = [pod for pod in seen.pods if pod.outdated]
    return max(outdated, key=lambda pod: pod.node_id).name if outdated else ""


def restart(
    seen: Observation, facts: ClusterFacts, statuses: Mapping[int, OffsetsPartitionStatus]
) -> Iterator[RestartPod]:
    """Restart the pod once every partition is led and fully followed, and no other pod could lead what it leads.

    A pod that is down is restarted at once: the older template may be what keeps it down.
    """
    for pod in seen.pods:
        if (
            pod.outdated
            and pod.connection is Connection.DOWN
            and not pod.draining
            and (CallKind.RESTART, pod.name) not in seen.busy
        ):
            yield RestartPod(pod.name, pod.uid)
            return
    if not facts.emptying or (CallKind.RESTART, facts.emptying) in seen.busy:
        return
    pod = facts.pods[facts.emptying]
    if all(_is_whole(status) and not _is_to_move(status, pod) for status in statuses.values()):
        yield RestartPod(pod.name, pod.uid)


def _is_whole(status: OffsetsPartitionStatus) -> bool:
    settled = not status.previous_replicas and not status.learners
    return status.state is PartitionState.LED and settled and status.following == len(status.replicas)


def _is_to_move(status: OffsetsPartitionStatus, pod: PodView) -> bool:
    return status.leader == pod.name and len(status.replicas) > 1
