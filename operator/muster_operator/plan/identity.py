"""The id of the Kafka cluster and the layout of its offsets topic, by what the volumes say (ADR 23).

Each pod's volume remembers the id of its Kafka cluster and the layout of the offsets topic from the last metadata
image. A cluster that is created again takes them from there, so clients see the same Kafka cluster, and groups are
looked up in the partitions that have their offsets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from muster_operator.api.models import Layout, OffsetsTopic
from muster_operator.plan.observation import Connection, Observation


@dataclass(frozen=True, slots=True)
class Identity:
    """`cluster_id`: "" while it is not known, and no pod may be told one. `trouble`: what a person has to do."""

    cluster_id: str
    trouble: str = ""


def identify(seen: Observation) -> Identity:
    """The id that is recorded or declared, or that most volumes remember, or, if no volume remembers one, a new one."""
    assert seen.cluster is not None
    cluster, up = seen.cluster, [pod for pod in seen.pods if pod.is_up]
    recorded, declared = cluster.status.cluster_id or cluster.spec.cluster_id, cluster.spec.pods
    told = Counter(pod.cluster_id for pod in up if pod.cluster_id)
    all_up = len(up) >= declared and len(up) == len(seen.pods)
    most, count = max(told.items(), key=lambda each: (each[1], each[0]), default=("", 0))
    by_majority = 2 * count > declared
    if recorded:
        if most != recorded and by_majority:
            return Identity(recorded, f"this is Kafka cluster {recorded}, and most volumes are of Kafka cluster {most}")
        return Identity(recorded, _strangers(seen, recorded))
    # An empty volume has no voice: those that are away can have no other majority among the rest.
    voices = declared - sum(not pod.cluster_id for pod in up)
    if most and (2 * count > voices or (all_up and len(told) == 1)):
        return Identity(most, _strangers(seen, most))
    if len(told) > 1 and all_up:
        return Identity("", f"the volumes are of several Kafka clusters, none with a majority: {_listed(seen)}")
    is_known = any(topic.status.leaderships for topic in seen.topics)
    if not told and (all_up or (is_known and 2 * len(up) > declared)):
        return Identity(cluster.metadata.uid or f"{seen.namespace}.{seen.name}")
    return Identity("")


def without_strangers(seen: Observation, cluster_id: str) -> Observation:
    """The observation in which a pod whose volume is of another Kafka cluster is down: nothing on it is used."""
    pods = tuple(
        pod
        if pod.cluster_id in ("", cluster_id) or not cluster_id
        else replace(
            pod,
            connection=Connection.DOWN,
            ready=False,
            replicas={},
            detail=f"its volume is of Kafka cluster {pod.cluster_id}",
        )
        for pod in seen.pods
    )
    return seen if pods == seen.pods else replace(seen, pods=pods)


def _strangers(seen: Observation, cluster_id: str) -> str:
    strange = [pod.name for pod in seen.pods if pod.is_up and pod.cluster_id not in ("", cluster_id)]
    if not strange:
        return ""
    pod, kubectl = strange[0], f"kubectl -n {seen.namespace}"
    return (
        f"this is Kafka cluster {cluster_id}, and the volume of pod {', '.join(strange)} is of another one:"
        f" {_listed(seen)}; to give pod {pod} an empty volume:"
        f" {kubectl} delete pvc data-{pod} --wait=false && {kubectl} delete pod {pod}"
    )


def _listed(seen: Observation) -> str:
    return ", ".join(f"{pod.name} of {pod.cluster_id}" for pod in seen.pods if pod.is_up and pod.cluster_id)


def lost_layout(seen: Observation, topic: OffsetsTopic) -> tuple[Layout | None, str]:
    """The layout that the volumes remember and the topic does not, and why it cannot be used.

    (None, ""): the topic has the same, or a later one. A re-shard moves the base up, and records that before any pod is
    told. So a higher one on a volume is newer than a record that was lost, or restored from before.
    """
    told = {each for pod in seen.pods if pod.is_up for each in pod.layouts if each.base in topic.numbers}
    if not told:
        return None, ""
    newest = max(told, key=lambda layout: (layout.base, layout.partitions))
    if newest.base > topic.layout.base:
        return newest, ""
    if newest == topic.layout or topic.status.leaderships or topic.status.layout is not None:
        return None, ""
    meta, has, had = topic.metadata, topic.spec.partitions, newest.partitions
    return None, (
        f"the volumes have {had} partitions of this cluster, and spec.partitions is {has}: groups would be looked up in"
        f" the wrong ones. To go on with them: kubectl -n {meta.namespace} get offsetstopic {meta.name} -o yaml"
        f" | sed 's/^  partitions: {has}$/  partitions: {had}/' | kubectl replace --force -f -"
    )
