"""The metadata image, which pods tell Kafka clients, and the pods that do not have the latest one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.podapi.image import (
    Broker,
    DeclaredTopic,
    Endpoint,
    MetadataImage,
    PartitionLeader,
    Peer,
    ReplicaPlace,
)
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import (
    CoordinatorCluster,
    Layout,
    OffsetsPartitionStatus,
    OffsetsTopic,
    PartitionState,
)
from muster_operator.plan.actions import PublishMetadata
from muster_operator.plan.observation import CallKind, Connection, ImageNumber, Observation, PodView
from muster_operator.plan.reshard import holds_transactions


def publish(
    seen: Observation,
    topics: Sequence[OffsetsTopic],
    partitions: Mapping[int, OffsetsPartitionStatus],
    cluster_id: str,
) -> PublishMetadata | None:
    """Give every pod that serves another image the image of `partitions`, as they are about to be recorded.

    What pods say of a partition without a record is told as it is: an image without it would cut a leader that serves
    from its followers and its clients. While pods are still being asked, nothing is told of such a partition at all.
    """
    indexes = [index for each in topics for index in each.layout.indexes]
    lost = [index for index in indexes if index not in partitions or not partitions[index].replicas]
    if lost and any(pod.connection is Connection.UNSURE for pod in seen.pods):
        return None
    image = _numbered(seen, _image(seen, topics, partitions, cluster_id))
    behind = tuple(
        pod.name
        for pod in seen.pods
        if pod.connection is Connection.UP
        and pod.image != number_of(image)
        and (CallKind.PUBLISH, pod.name) not in seen.busy
    )
    return PublishMetadata(behind, image) if behind else None


def _image(
    seen: Observation,
    topics: Sequence[OffsetsTopic],
    partitions: Mapping[int, OffsetsPartitionStatus],
    cluster_id: str,
) -> MetadataImage:
    assert seen.cluster is not None
    alive = {pod.name: pod for pod in seen.pods if pod.connection is not Connection.DOWN and ":" in pod.kafka_address}
    spec = seen.cluster.spec
    layouts: dict[str, Layout] = {each.spec.topic: each.layout for each in topics}
    indexes = [index for each in topics for index in each.layout.indexes]
    groups = layouts[OFFSETS.name]
    transactions = layouts.get(TRANSACTIONS.name, Layout(TRANSACTIONS.first, 0))
    leaders = ((index, *_leader(index, partitions.get(index), alive)) for index in indexes)
    places = {*_places(partitions, seen.pods), *_places_by_pods(seen.pods, frozenset(indexes), partitions)}
    return MetadataImage(
        token=0,
        version=0,
        cluster_id=cluster_id,
        brokers=_brokers(seen, seen.cluster),
        offsets_partitions=groups.partitions,
        leaders=tuple(PartitionLeader(*each) for each in leaders),
        topics=tuple(DeclaredTopic(declared.name, declared.partitions) for declared in spec.topics),
        any_topic=spec.any_topic,
        peers=tuple(Peer(pod.name, *_host_and_port(pod.peer_address)) for pod in seen.pods if pod.peer_address),
        places=tuple(ReplicaPlace(*each) for each in sorted(places)),
        offsets_base=groups.base,
        transaction_base=transactions.base,
        transaction_partitions=transactions.partitions,
        holds_transactions=holds_transactions(seen, topics),
    )


def _brokers(seen: Observation, cluster: CoordinatorCluster) -> tuple[Broker, ...]:
    """The pods that clients are told of: also those that are down, for `rebalanceAfter`. A client of librdkafka that
    remembers a coordinator on a pod which Metadata names no more waits for it for good, past all its time-outs
    (https://github.com/confluentinc/librdkafka/issues/5511). Not for longer, as with Kafka's
    broker.session.timeout.ms of 9 s: Kafka's commands ask every pod that is named, and fail where one is down. A pod
    that only the operator does not reach may lead and serve.
    """
    told_s = parse_duration(cluster.spec.failover.rebalance_after)
    away = {pod.node_id for pod in seen.pods if pod.connection is Connection.DOWN and pod.steady_s >= told_s}
    before = seen.image.brokers if seen.image is not None else ()
    told = {each.node_id: each for each in before if each.node_id < cluster.spec.pods}
    told.update({pod.node_id: _broker(pod) for pod in seen.pods if ":" in pod.kafka_address})
    away |= {pod.node_id for pod in seen.pods if pod.hidden}
    return tuple(broker for number, broker in sorted(told.items()) if number not in away)


def _broker(pod: PodView) -> Broker:
    endpoints = (Endpoint(name, *_host_and_port(address)) for name, address in sorted(pod.endpoints.items()))
    return Broker(pod.node_id, *_host_and_port(pod.kafka_address), pod.name, tuple(endpoints))


def _places(
    partitions: Mapping[int, OffsetsPartitionStatus], pods: Iterable[PodView]
) -> Iterator[tuple[int, str, str]]:
    """(partition, log id, pod) of all that the leader sends its log to: replicas, learners, and logs that left the set
    until they know that it is final without them, because a pod deletes no log before.
    """
    done = {view.log_id for pod in pods for view in pod.replicas.values() if view.has_left or not view.used}
    for index, status in partitions.items():
        left = (each for each in status.left if each.log_id not in done)
        for log_id, pod in {
            each.log_id: each.pod for each in (*left, *status.previous_replicas, *status.replicas, *status.learners)
        }.items():
            if log_id and pod:
                yield index, log_id, pod


def _places_by_pods(
    pods: Iterable[PodView], indexes: Collection[int], partitions: Mapping[int, OffsetsPartitionStatus]
) -> Iterator[tuple[int, str, str]]:
    """Likewise of the used logs of partitions without a record. While nobody leads, also of those that another log
    names: a restored record can be older than the logs, and who is elected has to reach all that its own log names.
    """
    pods = tuple(pods)
    named = {
        (index, each)
        for pod in pods
        for index, view in pod.replicas.items()
        for each in (*view.replicas, *view.previous_replicas)
    }
    for pod in pods:
        for index, view in pod.replicas.items():
            status = partitions.get(index)
            if index not in indexes or not view.used or not view.log_id:
                continue
            only_named = status is not None and status.replicas and status.state is not PartitionState.LED
            if status is None or not status.replicas or (only_named and (index, view.log_id) in named):
                yield index, view.log_id, pod.name


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _leader(index: int, status: OffsetsPartitionStatus | None, alive: Mapping[str, PodView]) -> tuple[int, int]:
    """(node id or -1, epoch). A pod that is being elected counts: it answers COORDINATOR_LOAD_IN_PROGRESS."""
    if status is None or not status.replicas:
        views = [(view, pod) for pod in alive.values() if (view := pod.replicas.get(index)) and view.is_active]
        leads_in = {view.leader_epoch: pod.node_id for view, pod in views}
        epoch = max(leads_in, default=-1)
        return leads_in.get(epoch, -1), max(epoch, status.epoch if status is not None else -1)
    leads = status.state in (PartitionState.LED, PartitionState.ELECTING) and status.leader in alive
    return (alive[status.leader].node_id if leads and status.leader is not None else -1, status.epoch)


def number_of(image: MetadataImage | None) -> ImageNumber:
    """The number of an image; (-1, -1) for none."""
    return (-1, -1) if image is None else (image.token, image.version)


def has_other_content(image: MetadataImage, last: MetadataImage | None) -> bool:
    """True if the two differ in more than their numbers."""
    return last is None or replace(image, token=last.token, version=last.version) != last


def _numbered(seen: Observation, image: MetadataImage) -> MetadataImage:
    """The last image if this one has the same content, else this one with a number above those of all pods.

    After the store was restored from a backup, a pod can serve a higher number than the operator's. A number above it
    always ends with this operator's image on all pods. Of two operators, the one that lives wins because it repeats.
    """
    last, least = number_of(seen.image), max(_highest(seen.pods), (seen.fencing_token, 0))
    if seen.image is not None and last >= least and not has_other_content(image, seen.image):
        return seen.image
    token, version = max(last, least)
    return replace(image, token=token, version=version + 1)


def token_above(own: int, pods: Iterable[PodView]) -> int:
    """The fencing token for the calls of this operator: `own`, or above every token that a pod has seen.

    A pod refuses a token lower than one that it has seen. It has seen a higher one than ours after another operator
    took over from this one, which then ends, or after the store, from which operators get their tokens, was restored
    from a backup. In both cases the operator has seen the other one's token, and acts on what it observes after that.
    """
    highest = max((pod.fencing_token for pod in pods), default=-1)
    return highest + 1 if highest > own else own


def _highest(pods: Sequence[PodView]) -> ImageNumber:
    return max((pod.image for pod in pods if pod.connection is Connection.UP), default=(-1, -1))
