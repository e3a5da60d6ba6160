"""Guards of Metadata, DescribeCluster, FindCoordinator and WriteTxnMarkers."""

from __future__ import annotations

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Rights, hand_on, split
from muster_coordinator.listener.access.offsets import NameOf
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.handlers.cluster import asks_by_id_in_vain
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.security.acls import Operation, ResourceType


class MetadataGuard:
    def __init__(self, name_of: NameOf) -> None:
        self._name_of = name_of

    def __call__(self, request: w.MetadataRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
        """Topics that may not be described are an error without any sign of whether they exist, and left out where all
        were asked for."""
        if asks_by_id_in_vain(request, exchange.version):
            handler(request, exchange)
            return
        if request.topics is None:
            allowed, refused = None, []
        else:
            allowed, others = split(request.topics, lambda topic: self._may(topic, rights))
            refused = [_refused(topic) for topic in others]

        def change(response: w.MetadataResponse) -> w.MetadataResponse:
            found = response.topics
            if request.topics is None:
                sees = rights.unasked
                found = tuple([t for t in found if sees.topic(Operation.DESCRIBE, t.name or "")])
            return msgspec.structs.replace(
                response,
                topics=(*(_with_operations(topic, rights) for topic in found), *refused),
                cluster_authorized_operations=_cluster_operations(response.cluster_authorized_operations, rights),
            )

        hand_on(msgspec.structs.replace(request, topics=allowed), exchange, handler, change)

    def _may(self, topic: w.MetadataRequestTopic, rights: Rights) -> bool:
        """An id that no topic has is left to the handler."""
        name = topic.name if topic.name is not None else self._name_of(topic.topic_id)
        return name is None or rights.topic(Operation.DESCRIBE, name)


def describe_cluster(
    request: w.DescribeClusterRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    def change(response: w.DescribeClusterResponse) -> w.DescribeClusterResponse:
        operations = _cluster_operations(response.cluster_authorized_operations, rights)
        return msgspec.structs.replace(response, cluster_authorized_operations=operations)

    hand_on(request, exchange, handler, change)


def find_coordinator(
    request: w.FindCoordinatorRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    refused = {key: code for key in request.keys if (code := _of_coordinator(request.key_type, key, rights))}

    def change(response: w.FindCoordinatorResponse) -> w.FindCoordinatorResponse:
        found = iter(response.coordinators)
        coordinators = [
            w.Coordinator(key, error_code=int(refused[key])) if key in refused else next(found) for key in request.keys
        ]
        return w.FindCoordinatorResponse(tuple(coordinators))

    keys = tuple([key for key in request.keys if key not in refused])
    hand_on(msgspec.structs.replace(request, keys=keys), exchange, handler, change)


def write_txn_markers(
    request: w.WriteTxnMarkersRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    if rights.unasked.cluster(Operation.ALTER) or rights.cluster(Operation.CLUSTER_ACTION):
        handler(request, exchange)
        return
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    markers = tuple(
        [
            (marker.producer_id, tuple([(topic, tuple([(p, code) for p in parts])) for topic, parts in marker.topics]))
            for marker in request.markers
        ]
    )
    exchange.answer(w.WriteTxnMarkersResponse(markers))


def _of_coordinator(key_type: int, key: str, rights: Rights) -> ErrorCode:
    if key_type == w.KEY_TYPE_GROUP and not rights.group(Operation.DESCRIBE, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == w.KEY_TYPE_TRANSACTION and not rights.transactional_id(Operation.DESCRIBE, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _refused(topic: w.MetadataRequestTopic) -> w.MetadataTopic:
    """The refusal of a topic, with the id only if the client has named it by its id."""
    topic_id = topic.topic_id if topic.name is None else bytes(16)
    return w.MetadataTopic(topic.name, topic_id, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def _with_operations(topic: w.MetadataTopic, rights: Rights) -> w.MetadataTopic:
    if topic.authorized_operations == w.OPERATIONS_NOT_REQUESTED or topic.name is None:
        return topic
    operations = rights.operations(ResourceType.TOPIC, topic.name)
    return msgspec.structs.replace(topic, authorized_operations=operations)


def _cluster_operations(answered: int, rights: Rights) -> int:
    """Returns nothing for a client that may not describe the cluster (KIP-430)."""
    if answered == w.OPERATIONS_NOT_REQUESTED:
        return answered
    return rights.operations(ResourceType.CLUSTER) if rights.unasked.cluster(Operation.DESCRIBE) else 0
