"""The metadata image, which pods tell Kafka clients, and the pods that do not have the latest one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster_operator.api.models import OffsetsPartitionStatus, OffsetsTopic, PartitionState
from muster_operator.plan.actions import PublishMetadata
from muster_operator.plan.observation import Broker, CallKind, Connection, Image, ImageNumber, Observation, PodView

__all__ = ["publish", "token_above"]


def publish(
    seen: Observation, topic: OffsetsTopic, partitions: Mapping[int, OffsetsPartitionStatus]
) -> PublishMetadata | None:
    """Give every pod that serves another image the image of `partitions`, as they are about to be recorded."""
    image = _image(seen, topic, partitions)
    number = _number(seen, image)
    behind = tuple(
        pod.name
        for pod in seen.pods
        if pod.connection is Connection.UP and pod.image != number and (CallKind.PUBLISH, pod.name) not in seen.busy
    )
    return PublishMetadata(behind, number, image) if behind else None


def _image(seen: Observation, topic: OffsetsTopic, partitions: Mapping[int, OffsetsPartitionStatus]) -> Image:
    assert seen.cluster is not None
    alive = {pod.name: pod for pod in seen.pods if pod.connection is not Connection.DOWN and ":" in pod.kafka_address}
    spec = seen.cluster.spec
    return Image(
        cluster_id=seen.cluster.metadata.uid or f"{seen.namespace}.{seen.name}",
        brokers=tuple(_broker(pod) for pod in alive.values()),
        leaders=tuple(_leader(partitions.get(index), alive) for index in topic.layout.indexes),
        topics=tuple((declared.name, declared.partitions) for declared in spec.topics),
        any_topic=spec.any_topic,
        peers=tuple((pod.name, pod.peer_address) for pod in seen.pods if pod.peer_address),
        places=tuple(sorted(_places(partitions))),
        offsets_base=topic.layout.base,
    )


def _places(partitions: Mapping[int, OffsetsPartitionStatus]) -> Iterator[tuple[int, str, str]]:
    """(partition, log id, pod) of all replicas and learners: the leader sends its log to both."""
    for index, status in partitions.items():
        for log_id, pod in {
            each.log_id: each.pod for each in (*status.previous_replicas, *status.replicas, *status.learners)
        }.items():
            if log_id and pod:
                yield index, log_id, pod


def _broker(pod: PodView) -> Broker:
    host, _, port = pod.kafka_address.rpartition(":")
    return Broker(pod.node_id, host.strip("[]"), int(port), pod.name)


def _leader(status: OffsetsPartitionStatus | None, alive: Mapping[str, PodView]) -> tuple[int, int]:
    """(node id or -1, epoch). A pod that is being elected counts: it answers COORDINATOR_LOAD_IN_PROGRESS."""
    if status is None:
        return (-1, -1)
    leads = status.state in (PartitionState.LED, PartitionState.ELECTING) and status.leader in alive
    return (alive[status.leader].node_id if leads and status.leader is not None else -1, status.epoch)


def _number(seen: Observation, image: Image) -> ImageNumber:
    """The number of the last image if this one equals it, else a number above those of all pods.

    After the store was restored from a backup, a pod can serve a higher number than the operator's. A number above it
    always ends with this operator's image on all pods. Of two operators, the one that lives wins because it repeats.
    """
    served = _highest(seen.pods)
    if seen.image == image and seen.image_number >= max(served, (seen.fencing_token, 0)):
        return seen.image_number
    token, version = max(seen.image_number, served, (seen.fencing_token, 0))
    return (token, version + 1)


def token_above(own: int, pods: Iterable[PodView]) -> int:
    """The fencing token for the calls of this operator: `own`, or above every token that a pod has seen.

    A pod refuses a token lower than one that it has seen. It has seen a higher one than ours after another operator
    took over from this one, which then ends, or after the store, from which operators get their tokens, was restored
    from a backup. In both cases the operator has seen the other one's token, and acts on what it observes from then on.
    """
    highest = max((pod.fencing_token for pod in pods), default=-1)
    return highest + 1 if highest > own else own


def _highest(pods: Sequence[PodView]) -> ImageNumber:
    return max((pod.image for pod in pods if pod.connection is Connection.UP), default=(-1, -1))
