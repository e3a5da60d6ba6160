"""A rollout: pods with an older template than declared restart one at a time, once their leaders have moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartitionStatus, PartitionState
from muster_operator.plan.actions import RestartPod
from muster_operator.plan.observation import CallKind, Connection, Observation, PodView
from muster_operator.plan.verdict import Verdict

STARTING = ("ContainerCreating", "PodInitializing")
"""The reasons of a container whose image is pulled, or whose volumes are mounted: it is on its way."""


def image_of(seen: Observation) -> str:
    """The image of the declared template: the one that the spec names, or else the one that the cluster has. A new
    operator brings another image for new clusters, and restarts no pod of those that are there.
    """
    assert seen.cluster is not None
    running = Counter(pod.container_image for pod in seen.pods if pod.container_image)
    most = running.most_common(1)[0][0] if running else seen.default_image
    return seen.cluster.spec.image or seen.cluster.status.image or most


def verdict_of_rollout(seen: Observation) -> Verdict | None:
    """The verdict on pods that do not run the declared template; None if all of them do."""
    assert seen.cluster is not None
    outdated = [pod.name for pod in seen.pods if pod.outdated]
    if seen.applied and not outdated:
        return None
    stopped = _broken(seen)
    broken = [pod for pod in stopped if pod.trouble not in STARTING]
    if outdated and broken:
        pod = broken[0]
        text = (
            f"pod {pod.name} of the declared template does not run, so {', '.join(outdated)} keep the one before:"
            f" {pod.trouble}"
        )
        return Verdict(Reason.ROLLOUT_HALTED, text, stalled=True)
    if outdated and seen.cluster.spec.rollout.paused:
        text = f"spec.rollout.paused is set: {', '.join(outdated)} keep an older template"
        return Verdict(Reason.ROLLOUT_PAUSED, text, reconciling=True)
    if outdated and seen.rollout_waits:
        text = f"{seen.rollout_waits}; until then {', '.join(outdated)} keep an older template"
        return Verdict(Reason.ROLLOUT_WAITS, text, reconciling=True)
    text = f"{len(seen.pods) - len(outdated)} of {len(seen.pods)} pods run the declared template"
    text += "".join(f"; pod {pod.name}: {pod.trouble}" for pod in stopped)
    return Verdict(Reason.ROLLING_OUT, text if outdated else "the declared template is being applied", reconciling=True)


def _broken(seen: Observation) -> list[PodView]:
    """The pods of the declared template that do not run, but for those that wait for a volume of a node."""
    waiting = {each.pod for each in seen.stranded}
    return [pod for pod in seen.pods if not pod.outdated and not pod.is_up and pod.trouble and pod.name not in waiting]


def next_to_restart(seen: Observation, steady_s: float) -> str:
    """The outdated pod to restart next, highest ordinal first as a StatefulSet does; "" if there is none.

    Also "" while a pod is missing or has been up for less than `steady_s` seconds: its replicas must be warm before
    they take over what the next pod gives up.
    """
    assert seen.cluster is not None
    if len(seen.pods) < seen.cluster.spec.pods or seen.cluster.spec.rollout.paused or seen.rollout_waits:
        return ""
    if not all(pod.is_up and not pod.draining and pod.steady_s >= steady_s for pod in seen.pods):
        return ""
    outdated = [pod for pod in seen.pods if pod.outdated]
    return max(outdated, key=lambda pod: pod.node_id).name if outdated else ""


def how_it_ended(seen: Observation) -> str:
    """The reason why no pod is about to be replaced: all serve with the declared template, or a person has to act. ""
    if one is."""
    assert seen.cluster is not None
    if all(pod.is_up and not pod.outdated for pod in seen.pods) and len(seen.pods) >= seen.cluster.spec.pods:
        return "done"
    if seen.cluster.spec.rollout.paused:
        return "paused"
    broken = _broken(seen)
    return f"pod {broken[0].name} does not run: {broken[0].trouble}" if broken else ""


def restart(
    seen: Observation, emptying: str, expected: Collection[int], statuses: Mapping[int, OffsetsPartitionStatus]
) -> Iterator[RestartPod]:
    """Restart the pod `emptying` once every `expected` partition is led and fully followed, and no other pod could
    lead what it leads. A partition whose object is still to be created is led all the same, by whom nobody has
    recorded.

    A pod that is down is restarted at once: the older template may be what keeps it down. But not while a pod of the
    declared template does not run: that template would keep this one down too, which else comes back by itself.
    """
    assert seen.cluster is not None
    if seen.cluster.spec.rollout.paused or _broken(seen):
        return
    for pod in seen.pods:
        if (
            pod.outdated
            and pod.connection is Connection.DOWN
            and not pod.draining
            and (CallKind.RESTART, pod.name) not in seen.busy
        ):
            yield RestartPod(pod.name, pod.uid)
            return
    if not emptying or (CallKind.RESTART, emptying) in seen.busy:
        return
    pod = next(each for each in seen.pods if each.name == emptying)
    if statuses.keys() >= {*expected} and all(
        lets_restart(seen, status) and not _is_to_move(status, pod) for status in statuses.values()
    ):
        yield RestartPod(pod.name, pod.uid)


def lets_restart(seen: Observation, status: OffsetsPartitionStatus) -> bool:
    """True if the partition loses nothing by the restart of one pod. It is whole; or no pod could load its log, which
    a later version may have written, and the declared template has not been tried on any of its replicas yet.
    """
    if is_whole(status):
        return True
    outdated = {pod.name for pod in seen.pods if pod.outdated}
    failed = status.state is PartitionState.LEADERLESS and status.reason == Reason.LOAD_FAILED
    return failed and outdated.issuperset(each.pod for each in status.replicas)


def is_whole(status: OffsetsPartitionStatus) -> bool:
    """True if the partition is led, its set is final, and every replica follows."""
    settled = not status.previous_replicas and not status.learners
    return status.state is PartitionState.LED and settled and status.following == len(status.replicas)


def _is_to_move(status: OffsetsPartitionStatus, pod: PodView) -> bool:
    return status.state is PartitionState.LED and status.leader == pod.name and len(status.replicas) > 1
