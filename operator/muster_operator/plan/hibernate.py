"""A cluster that is put to sleep: no pods, and everything that they know stays on their volumes.

Nothing is moved, elected or recorded for that, so it works in whatever state the cluster is. When it is taken back, the
record and the logs are there, and partitions are elected like after any loss of all pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster_operator.api.conditions import Reason
from muster_operator.api.models import CoordinatorCluster, OffsetsPartitionStatus, OffsetsTopic
from muster_operator.plan.actions import Action, WriteClusterStatus, WritePartitionStatus, WriteTopicStatus
from muster_operator.plan.decision import leaderless
from muster_operator.plan.identity import identify
from muster_operator.plan.objects import Objects
from muster_operator.plan.observation import Observation
from muster_operator.plan.status import cluster_status, partition_status, topic_status
from muster_operator.plan.verdict import Verdict

TEXT = "spec.hibernate is set: no pods run, and their volumes stay"


def hibernate(
    seen: Observation, cluster: CoordinatorCluster, topics: Sequence[OffsetsTopic], objects: Objects, time: str
) -> Iterator[Action]:
    """Say so of everything. Pods that still answer are about to end, and nobody takes over from them."""
    verdict = Verdict(Reason.HIBERNATED, TEXT)
    statuses: dict[int, OffsetsPartitionStatus] = {}
    for index, record in objects.recorded.items():
        decided = leaderless(record.status, Reason.HIBERNATED, TEXT)
        status = partition_status(record, decided.status, decided.message, time)
        statuses[index] = status
        if status != objects.shown[index].status:
            yield WritePartitionStatus(objects.shown[index], status)
    for topic in topics:
        own = [status for index, status in statuses.items() if index in topic.numbers]
        after = topic_status(topic, own, verdict, time)
        if after != topic.status:
            yield WriteTopicStatus(topic, after)
    told = cluster_status(seen, list(statuses.values()), verdict, identify(seen), time)
    if told != cluster.status:
        yield WriteClusterStatus(cluster, told)
