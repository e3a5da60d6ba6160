"""Volumes that no node can use any more: whether one is given up, and what is said of it (ADR 39)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from muster_operator.api.conditions import Reason
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import OffsetsPartitionStatus, OffsetsTopic, PartitionState
from muster_operator.plan.actions import Action, Refresh, ReplaceVolume
from muster_operator.plan.observation import CallKind, Observation, StrandedVolume, ordinal_of
from muster_operator.plan.reshard import indexes, is_under_way
from muster_operator.plan.scale import pods_to_run
from muster_operator.plan.verdict import Verdict

NO_COPY = "has no other copy"


def replace_volume(
    seen: Observation, topics: Sequence[OffsetsTopic], statuses: Mapping[int, OffsetsPartitionStatus]
) -> Iterator[Action]:
    """Give up a volume that has been stranded for spec.storage.giveUpAfter, if nothing needs it. One at a time: the
    partitions of its pod need the next one until they have all their copies again.
    """
    assert seen.cluster is not None
    after_s = parse_duration(seen.cluster.spec.storage.give_up_after)
    due = (each for each in _stranded(seen) if 0 < after_s <= each.for_s)
    volume = next((each for each in due if not needed_for(seen, each, topics, statuses)), None)
    if volume is None:
        return
    leaders = {str(status.leader) for index, status in statuses.items() if _may_lack(seen, volume, index, status)}
    yield from (Refresh(pod) for pod in sorted(leaders) if (CallKind.REFRESH, pod) not in seen.busy)
    if not leaders:
        yield ReplaceVolume(volume)


def verdict_of_volumes(
    seen: Observation, topics: Sequence[OffsetsTopic], statuses: Mapping[int, OffsetsPartitionStatus]
) -> Verdict | None:
    """The verdict on one stranded volume, first on one that is not needed; None if there is none."""
    assert seen.cluster is not None
    found = [(needed_for(seen, each, topics, statuses), each) for each in _stranded(seen)]
    if not found:
        return None
    needed, volume = next((each for each in found if not each[0]), found[0])
    after = seen.cluster.spec.storage.give_up_after
    text = f"pod {volume.pod} waits for the volume of claim {volume.names}: {volume.why}"
    if needed:
        text += f". The volume is needed, because {needed}: bring the node back"
        stalled = needed.endswith(NO_COPY) or not parse_duration(after)
        return Verdict(Reason.VOLUME_STRANDED, text, stalled=stalled, reconciling=not stalled)
    if parse_duration(after):
        text += f". It is given up after {after} (spec.storage.giveUpAfter), as all that it has is on other pods"
        return Verdict(Reason.VOLUME_STRANDED, text, reconciling=True)
    claims = " ".join(f"pvc/{name}" for name, _ in volume.claims)
    # Without waiting: objects of these names are there again at once.
    command = f"kubectl -n {seen.namespace} delete {claims} pod/{volume.pod} --wait=false"
    text += f". All that it has is on other pods. Bring the node back; or give the volume up: {command}"
    return Verdict(Reason.VOLUME_STRANDED, text, stalled=True)


def needed_for(
    seen: Observation,
    volume: StrandedVolume,
    topics: Sequence[OffsetsTopic],
    statuses: Mapping[int, OffsetsPartitionStatus],
) -> str:
    """The reason why the volume must not be given up now; "" if each partition that may be on it is led by a majority
    of its set, and has all its copies but those on pods that wait for a volume.
    """
    assert seen.cluster is not None
    if len(seen.pods) < seen.cluster.spec.pods:
        return "pods are missing, too"
    waiting = _waiting(seen)
    if away := [pod.name for pod in seen.pods if not pod.is_up and pod.name not in waiting]:
        return f"pod {away[0]} is away, too"
    for topic in topics:
        if is_under_way(topic):
            return "a re-shard is under way"
        if unknown := [index for index in indexes(topic) if index not in statuses]:
            return f"nothing is recorded of partition {unknown[0]}"
    found = ((index, _needed_for(status, volume.pod, waiting)) for index, status in sorted(statuses.items()))
    return next((f"partition {index} {why}" for index, why in found if why), "")


def _needed_for(status: OffsetsPartitionStatus, pod: str, waiting: Collection[str]) -> str:
    if not _may_be_on(status, pod):
        return ""
    there = [each for each in status.replicas if each.pod and each.pod not in waiting]
    if not there:
        return NO_COPY
    if status.state is not PartitionState.LED:
        return "is not led"
    if status.previous_replicas:  # learners count nowhere yet, and one may wait for this very pod
        return "gets other replicas"
    if status.following != len(there):
        return "has copies that do not follow its leader"
    # What is given up counts in the set until another set is committed by a majority of this one.
    return "" if 2 * len(there) > len(status.replicas) else "has no majority without it"


def _may_lack(seen: Observation, volume: StrandedVolume, index: int, status: OffsetsPartitionStatus) -> bool:
    """True if a copy of a partition of the volume may lack what is committed, by what its leader told last. What was
    committed before the node was lost may be on it and the leader alone.
    """
    leader = next((pod.replicas.get(index) for pod in seen.pods if pod.name == status.leader), None)
    if not _may_be_on(status, volume.pod) or leader is None:
        return leader is None
    waiting = _waiting(seen)
    for each in status.replicas:
        if not each.pod or each.pod in waiting or each.log_id == leader.log_id:
            continue
        position = leader.follower(each.log_id)
        if position is None or position.rebuilding or position.end_offset < leader.high_watermark:
            return True
    return False


def _may_be_on(status: OffsetsPartitionStatus, pod: str) -> bool:
    """True also if it is not known on which pod a log is: of all pods that answer it is on none."""
    return any(each.pod in ("", pod) for each in (*status.replicas, *status.previous_replicas))


def _waiting(seen: Observation) -> frozenset[str]:
    """The pods that are away because of their volumes. One that answers has its volume, whatever Kubernetes says."""
    up = {pod.name for pod in seen.pods if pod.is_up}
    return frozenset(each.pod for each in seen.stranded if each.pod not in up)


def _stranded(seen: Observation) -> Sequence[StrandedVolume]:
    """Those of pods that have to run: one above spec.pods does while it, or one above it, holds something."""
    waiting = _waiting(seen)
    if not waiting:  # nearly always: what has to run is not asked for in each plan
        return ()
    pods = pods_to_run(seen)
    return [each for each in seen.stranded if each.pod in waiting and ordinal_of(each.pod) < pods]
