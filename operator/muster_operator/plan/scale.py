"""Fewer pods than before: the pods above spec.pods give up their replicas and leaders first, and then go.

A StatefulSet ends its highest pods at once when its number is lowered, whatever they hold. So the number that it is
given falls only below a pod that no partition needs any more. Until then the pod counts like one on a cordoned node:
its leaders move, it gets no new replicas, and its replicas are replaced on the pods that stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, OffsetsTopic
from muster_operator.plan.hints import patch
from muster_operator.plan.objects import sort_objects, used_topics
from muster_operator.plan.observation import Observation, PodView, ordinal_of
from muster_operator.plan.reshard import indexes
from muster_operator.plan.verdict import Verdict


def emptying_surplus(seen: Observation, topics: Sequence[OffsetsTopic]) -> Observation:
    """The observation in which pods above spec.pods are to be emptied, if those that stay can hold all replicas."""
    assert seen.cluster is not None
    declared = seen.cluster.spec.pods
    if max(each.spec.replication_factor for each in topics) > declared or not _surplus(seen):
        return seen
    pods = tuple(replace(pod, cordoned=True) if pod.node_id >= declared else pod for pod in seen.pods)
    return replace(seen, pods=pods)


def pods_to_run(seen: Observation) -> int:
    """The number of pods that the workload shall have: those that are declared, and those above that a partition still
    needs."""
    assert seen.cluster is not None
    if seen.cluster.spec.hibernate:
        return 0
    declared = seen.cluster.spec.pods
    topics = used_topics(seen)
    records = sort_objects(seen, topics).recorded
    lost = any(index not in records for topic in topics for index in indexes(topic))
    lost = lost or any(not each.status.replicas for each in records.values())
    # While a record is lost, a volume of a pod that is not declared any more may have the log.
    volumes = seen.volumes if lost else 0
    named = {ordinal_of(pod) for each in records.values() for pod in _pods_of(each.status)}
    needed = {pod.node_id for pod in _surplus(seen) if _is_needed(pod, topics, records)}
    return max([declared, volumes, *(ordinal + 1 for ordinal in named | needed)])


def _is_needed(pod: PodView, topics: Sequence[OffsetsTopic], records: Mapping[int, OffsetsPartition]) -> bool:
    """True if the pod has a log that is still to be deleted, or can have one of a partition whose record is lost."""
    known = {index for index, each in records.items() if each.status.replicas}
    wanted: Collection[int] = {index for each in topics for index in indexes(each)} if topics else pod.replicas
    if not pod.is_up:
        return not topics or any(index not in known for index in wanted)
    left = any(each.pod == pod.name for record in records.values() for each in record.status.left)
    return left or any(view.used and index in wanted and index not in known for index, view in pod.replicas.items())


def scale_down(
    seen: Observation, topics: Sequence[OffsetsTopic], partitions: Sequence[OffsetsPartitionStatus]
) -> Verdict | None:
    """The verdict on pods above spec.pods; None if there are none."""
    assert seen.cluster is not None
    cluster, declared = seen.cluster, seen.cluster.spec.pods
    surplus = [pod.name for pod in _surplus(seen)]
    if not surplus:
        return None
    topic = max(topics, key=lambda each: each.spec.replication_factor)
    pods, factor = ", ".join(surplus), topic.spec.replication_factor
    back = patch("coordinatorcluster", cluster.metadata, {"pods": declared + len(surplus)})
    if factor > declared:
        fewer = patch("offsetstopic", topic.metadata, {"replicationFactor": 3 if declared >= 3 else 1})
        text = (
            f"pod {pods} stays: OffsetsTopic {topic.metadata.name} has replicationFactor {factor}, and spec.pods is"
            f" {declared}. Keep the pods: {back}; or keep fewer copies: {fewer}"
        )
        return Verdict(Reason.SCALE_DOWN_BLOCKED, text, stalled=True)
    if asking := next(_asking_for(seen, surplus), None):
        names = [name for name in asking.spec.replicas if name not in surplus]
        other = patch("offsetspartition", asking.metadata, {"replicas": names})
        text = (
            f"pod {pods} stays: spec.replicas of OffsetsPartition {asking.metadata.name} names it. Keep the pods:"
            f" {back}; or place the partition elsewhere: {other}"
        )
        return Verdict(Reason.SCALE_DOWN_BLOCKED, text, stalled=True)
    held = Counter(pod for each in partitions for pod in _pods_of(each) if pod in surplus)
    text = f"pod {pods} goes when it holds nothing: {held.total()} replicas are still there and move first"
    return Verdict(Reason.SCALING_DOWN, text, reconciling=True)


def _surplus(seen: Observation) -> list[PodView]:
    assert seen.cluster is not None
    return [pod for pod in seen.pods if pod.node_id >= seen.cluster.spec.pods]


def _pods_of(status: OffsetsPartitionStatus) -> set[str]:
    return {each.pod for each in (*status.replicas, *status.previous_replicas, *status.learners) if each.pod}


def _asking_for(seen: Observation, pods: Collection[str]) -> Iterator[OffsetsPartition]:
    return (each for each in seen.partitions if set(pods) & set(each.spec.replicas))
