"""ApiVersions, Metadata, DescribeCluster, FindCoordinator: answered from the cluster view, without a shard."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.handlers.stepwise import make_each
from muster_coordinator.partition_numbers import INTERNAL_TOPICS
from muster_coordinator.pod.cluster_view import ClusterView, is_legal_topic_name
from muster_coordinator.podapi.image import Broker
from muster_coordinator.requests import cluster as w
from muster_coordinator.wire.apis import api_versions_response
from muster_coordinator.wire.served import KAFKA_4_3, ServedApis
from muster_coordinator.wire.transaction_apis import TRANSACTION_FEATURES

_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS = 1, 2
_ID_WITHOUT_NAME = (10, 11)  # versions of Metadata that have topic ids but cannot ask by them (KAFKA-12701)
# Kafka's text of INVALID_REQUEST
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
_ALREADY_KNOWN = "SaslAuthenticate request received after successful authentication"
_NO_SUCH_GROUPS = "Muster has neither share groups nor Streams groups: use a Kafka cluster for them."


class ClusterHandlers:
    """Handlers of one listener: a client is told addresses of the listener that it came in by, as in Kafka. A pod
    without one does not exist for it.
    """

    def __init__(self, view: ClusterView, listener: str = "", served: ServedApis = KAFKA_4_3) -> None:
        """`served`: the APIs that the listener reads."""
        self._view = view
        self._listener = listener
        self._served = served

    def api_versions(self, request: w.ApiVersionsRequest, exchange: ClientAnswer) -> None:
        if self._view.has_transactions:
            response = api_versions_response(request, self._served.all, TRANSACTION_FEATURES)
        else:
            response = api_versions_response(request, self._served.without_transactions)
        if not response.error_code and self._view.is_another_server(request.cluster_id, request.node_id):
            response = w.ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED)
        exchange.answer(response)

    def sasl_handshake(self, request: w.SaslHandshakeRequest, exchange: ClientAnswer) -> None:
        """Nobody asks who the client is, or it has said so already (KafkaApis)."""
        exchange.answer(w.SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))

    def sasl_authenticate(self, request: w.SaslAuthenticateRequest, exchange: ClientAnswer) -> None:
        exchange.answer(w.SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _ALREADY_KNOWN))

    def metadata(self, request: w.MetadataRequest, exchange: ClientAnswer) -> None:
        view = self._view
        nodes = tuple(sorted(broker.node_id for broker in self._pods()))
        with_operations = request.include_topic_authorized_operations

        def answer(topics: tuple[w.MetadataTopic, ...]) -> None:
            exchange.answer(
                w.MetadataResponse(
                    brokers=self._brokers(),
                    cluster_id=view.image.cluster_id if view.image is not None else None,
                    controller_id=self._controller_id(),
                    topics=tuple(_with_operations(topic) for topic in topics) if with_operations else topics,
                    cluster_authorized_operations=_cluster_operations(request.include_cluster_authorized_operations),
                )
            )

        if request.topics is None:
            internal = {name: numbers for name in INTERNAL_TOPICS if (numbers := view.partitions_of(name))}
            answer(
                (
                    *(self._topic(name, nodes) for name in view.topics),
                    *(self._internal_topic(name, numbers) for name, numbers in internal.items()),
                )
            )
        elif asks_by_id_in_vain(request, exchange.version):
            refused = tuple(
                w.MetadataTopic(t.name or "", t.topic_id, ErrorCode.INVALID_REQUEST) for t in request.topics
            )
            exchange.answer(w.MetadataResponse((), None, -1, refused))
        else:
            asked = tuple(dict.fromkeys(request.topics))  # each once, as KafkaApis
            make_each(asked, lambda topic: self._asked_topic(topic, nodes), answer)

    def describe_cluster(self, request: w.DescribeClusterRequest, exchange: ClientAnswer) -> None:
        image = self._view.image
        if request.endpoint_type != _BROKER_ENDPOINTS:
            code, message = _endpoint_error(request.endpoint_type)
            exchange.answer(
                w.DescribeClusterResponse(
                    error_code=code, cluster_id="", controller_id=-1, brokers=(), error_message=message
                )
            )
            return
        exchange.answer(
            w.DescribeClusterResponse(
                error_code=ErrorCode.NONE,
                cluster_id=image.cluster_id if image is not None else "",
                controller_id=self._controller_id(),
                brokers=self._brokers(),
                cluster_authorized_operations=_cluster_operations(request.include_cluster_authorized_operations),
            )
        )

    def other_protocol(self, request: w.OtherProtocolRequest, exchange: ClientAnswer) -> None:
        exchange.answer(w.OtherProtocolResponse(ErrorCode.UNSUPPORTED_VERSION, _NO_SUCH_GROUPS))

    def find_coordinator(self, request: w.FindCoordinatorRequest, exchange: ClientAnswer) -> None:
        exchange.answer(
            w.FindCoordinatorResponse(tuple(self._coordinator(request.key_type, key) for key in request.keys))
        )

    def _coordinator(self, key_type: int, key: str) -> w.Coordinator:
        if key_type == w.KEY_TYPE_TRANSACTION and not self._view.has_transactions:
            return w.Coordinator(
                key,
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message="This cluster coordinates groups; transactions have their coordinator elsewhere.",
            )
        if key_type == w.KEY_TYPE_SHARE:  # as a broker without share groups
            return w.Coordinator(key, error_code=ErrorCode.INVALID_REQUEST)
        if key_type == w.KEY_TYPE_GROUP:
            partition = self._view.partition_of(key)
        elif key_type == w.KEY_TYPE_TRANSACTION:
            partition = self._view.partition_of_transactional_id(key)
        else:
            return w.Coordinator(key, error_code=ErrorCode.INVALID_REQUEST, error_message=_MALFORMED)
        leader = self._led_by(partition)[1] if partition is not None else None
        if leader is None:
            return w.Coordinator(key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return w.Coordinator(key, leader.node_id, leader.host, leader.port)

    # -- topics -------------------------------------------------------------------------------------------------------

    def _asked_topic(self, asked: w.MetadataRequestTopic, nodes: tuple[int, ...]) -> w.MetadataTopic:
        name = asked.name
        if name is None:
            name = self._view.name_of(asked.topic_id)
            if name is None:
                return w.MetadataTopic(None, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        if name in INTERNAL_TOPICS:
            return self._internal_topic(name, self._view.partitions_of(name))
        if self._view.partition_count_of(name) is None:
            legal = is_legal_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            return w.MetadataTopic(name, error_code=code)
        return self._topic(name, nodes)

    def _topic(self, name: str, nodes: tuple[int, ...]) -> w.MetadataTopic:
        """A declared topic: its partitions are spread over the pods, which answer ListOffsets and Fetch for them."""
        partitions = w.SpreadPartitions(self._view.partition_count_of(name) or 0, nodes)
        return w.MetadataTopic(name=name, topic_id=self._view.id_of(name), partitions=partitions)

    def _internal_topic(self, name: str, numbers: range) -> w.MetadataTopic:
        """Its partitions are led by whom FindCoordinator names for their keys."""
        if self._view.image is None:
            return w.MetadataTopic(name, error_code=ErrorCode.LEADER_NOT_AVAILABLE, is_internal=True)
        if not numbers:
            return w.MetadataTopic(name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return w.MetadataTopic(
            name=name,
            topic_id=self._view.id_of(name),
            is_internal=True,
            partitions=tuple(self._led_partition(index, number) for index, number in enumerate(numbers)),
        )

    def _led_partition(self, index: int, number: int) -> w.MetadataPartition:
        epoch, leader = self._led_by(number)
        return self._partition(index, -1 if leader is None else leader.node_id, max(epoch, 0))

    def _partition(self, index: int, leader: int, epoch: int) -> w.MetadataPartition:
        if leader < 0:
            return w.MetadataPartition(index, -1, ErrorCode.LEADER_NOT_AVAILABLE, epoch)
        return w.MetadataPartition(index, leader, ErrorCode.NONE, epoch, (leader,), (leader,))

    def _led_by(self, partition: int) -> tuple[int, Broker | None]:
        epoch, leader = self._view.led_by(partition)
        return epoch, None if leader is None else leader.on(self._listener)

    def _pods(self) -> Iterator[Broker]:
        for _, broker in sorted(self._view.brokers.items()):
            told = broker.on(self._listener)
            if told is not None:
                yield told

    def _brokers(self) -> tuple[w.MetadataBroker, ...]:
        return tuple(map(_wire_broker, self._pods()))

    def _controller_id(self) -> int:
        """This pod where clients of the listener are told of it: it is up, and no other one may be."""
        told = [(broker.pod != self._view.pod, broker.node_id) for broker in self._pods()]
        return min(told, default=(True, -1))[1]


def asks_by_id_in_vain(request: w.MetadataRequest, version: int) -> bool:
    """True if the request names a topic by id in a version whose topic id is not used."""
    topics = request.topics or ()
    return version in _ID_WITHOUT_NAME and any(t.name is None or any(t.topic_id) for t in topics)


def _endpoint_error(endpoint_type: int) -> tuple[ErrorCode, str]:
    """Code and text as in Kafka (AuthHelper#computeDescribeClusterResponse)."""
    if endpoint_type == _CONTROLLER_ENDPOINTS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return ErrorCode.MISMATCHED_ENDPOINT_TYPE, text
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"


def _cluster_operations(asked: bool) -> int:
    return w.ALL_CLUSTER_OPERATIONS if asked else w.OPERATIONS_NOT_REQUESTED


def _with_operations(topic: w.MetadataTopic) -> w.MetadataTopic:
    """Adds the operations, also of a topic that does not exist, as in Kafka; not of an id without a name."""
    if topic.name is None:
        return topic
    return msgspec.structs.replace(topic, authorized_operations=w.ALL_TOPIC_OPERATIONS)


def _wire_broker(broker: Broker) -> w.MetadataBroker:
    return w.MetadataBroker(broker.node_id, broker.host, broker.port)
