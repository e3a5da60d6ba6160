"""Requests and responses that are not about one group: broker-level ones, and those that carry several groups.

Free of protocol versions, like `requests.groups`, which holds the rest. Names are those of Kafka's message schemas.
Topic ids are 16 raw bytes. Every `throttle_time_ms` is 0 and so absent here: we do not throttle by delay (KIP-219).
"""

from __future__ import annotations

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.groups import (
    DeleteGroupResponse,
    DescribedGroup,
    DescribeGroupRequest,
    DescribeProducersResponse,
    OffsetFetchByIdRequest,
    OffsetFetchByIdResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

OPERATIONS_NOT_REQUESTED = -2147483648
"""`authorized_operations` when the request did not ask for them (KIP-430)."""

# Bits by AclOperation code: what everybody may do where there is no authorizer, as Kafka answers it.
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
ALL_GROUP_OPERATIONS = 0b1101_0100_1000


class _Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Immutable, cheap to build, not tracked by the garbage collector (messages hold no cycles)."""


# -- ApiVersions (18) -------------------------------------------------------------------------------------------------

NO_NODE = -1
"""The `node_id` of a client that does not know it."""


class ApiVersionsRequest(_Message, frozen=True):
    client_software_name: str | None = None  # None before v3 (KIP-511)
    client_software_version: str | None = None
    cluster_id: str | None = None  # v5+, KIP-1242: both of the server that the client looks for, or neither
    node_id: int = NO_NODE


class ApiVersionsResponse(_Message, frozen=True):
    error_code: int
    api_keys: tuple[tuple[int, int, int], ...] = ()  # (api_key, min_version, max_version)
    features: tuple[tuple[str, int], ...] = ()  # (name, finalized level)


# -- SaslHandshake (17), SaslAuthenticate (36) ------------------------------------------------------------------------


class SaslHandshakeRequest(_Message, frozen=True):
    mechanism: str


class SaslHandshakeResponse(_Message, frozen=True):
    error_code: int
    mechanisms: tuple[str, ...] = ()


class SaslAuthenticateRequest(_Message, frozen=True):
    auth_bytes: bytes

    def __repr__(self) -> str:  # it may hold a password
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


class SaslAuthenticateResponse(_Message, frozen=True):
    error_code: int
    error_message: str | None = ""  # of a success too, as in Kafka
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0  # v1+; 0: the session does not end


# -- Metadata (3), DescribeCluster (60) -------------------------------------------------------------------------------


class MetadataRequestTopic(_Message, frozen=True):
    name: str | None
    topic_id: bytes  # zero: by name


class MetadataRequest(_Message, frozen=True):
    topics: tuple[MetadataRequestTopic, ...] | None  # None: all topics
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataBroker(_Message, frozen=True):
    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False  # DescribeCluster v2+ (KIP-1073)


class MetadataPartition(_Message, frozen=True):
    partition: int
    leader_id: int  # -1: none
    error_code: int = 0
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


class SpreadPartitions(_Message, frozen=True):
    """Partitions 0 to `count` - 1. Partition i is led by node `nodes[i % len(nodes)]`, its only replica; without nodes
    none has a leader."""

    count: int
    nodes: tuple[int, ...]

    def partition(self, index: int) -> MetadataPartition:
        """One of them."""
        if not self.nodes:
            return MetadataPartition(index, -1, ErrorCode.LEADER_NOT_AVAILABLE, 0)
        leader = self.nodes[index % len(self.nodes)]
        return MetadataPartition(index, leader, ErrorCode.NONE, 0, (leader,), (leader,))


class MetadataTopic(_Message, frozen=True):
    name: str | None  # null only from v12: asked for by an id that is unknown. Earlier versions get ""
    topic_id: bytes = bytes(16)
    error_code: int = 0
    is_internal: bool = False
    partitions: tuple[MetadataPartition, ...] | SpreadPartitions = ()
    authorized_operations: int = OPERATIONS_NOT_REQUESTED


class MetadataResponse(_Message, frozen=True):
    brokers: tuple[MetadataBroker, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[MetadataTopic, ...]
    cluster_authorized_operations: int = OPERATIONS_NOT_REQUESTED
    error_code: int = 0  # v13+


class DescribeClusterRequest(_Message, frozen=True):
    include_cluster_authorized_operations: bool
    endpoint_type: int = 1  # 1: brokers, 2: controllers (KIP-919)
    include_fenced_brokers: bool = False


class DescribeClusterResponse(_Message, frozen=True):
    error_code: int
    cluster_id: str
    controller_id: int
    brokers: tuple[MetadataBroker, ...]
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_authorized_operations: int = OPERATIONS_NOT_REQUESTED


# -- FindCoordinator (10) ---------------------------------------------------------------------------------------------

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
KEY_TYPE_SHARE = 2


class FindCoordinatorRequest(_Message, frozen=True):
    """Before v4 the request names one key; `wire` makes a batch of one of it."""

    key_type: int
    keys: tuple[str, ...]


class Coordinator(_Message, frozen=True):
    key: str
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: int = 0
    error_message: str | None = None  # None: what Kafka says for the code in that version


class FindCoordinatorResponse(_Message, frozen=True):
    coordinators: tuple[Coordinator, ...]  # exactly one before v4


# -- OffsetFetch (9), DescribeGroups (15), DeleteGroups (42) ----------------------------------------------------------


class OffsetFetchRequests(_Message, frozen=True):
    groups: tuple[OffsetFetchRequest, ...]  # exactly one before v8
    require_stable: bool = False


class OffsetFetchResponses(_Message, frozen=True):
    groups: tuple[OffsetFetchResponse, ...]  # exactly one before v8


class OffsetFetchByIdRequests(_Message, frozen=True):
    groups: tuple[OffsetFetchByIdRequest, ...]
    require_stable: bool = False


class OffsetFetchByIdResponses(_Message, frozen=True):
    groups: tuple[OffsetFetchByIdResponse, ...]


class DescribeGroupsRequest(_Message, frozen=True):
    groups: tuple[DescribeGroupRequest, ...]
    include_authorized_operations: bool = False


class DescribeGroupsResponse(_Message, frozen=True):
    groups: tuple[DescribedGroup, ...]
    authorized_operations: int = OPERATIONS_NOT_REQUESTED  # of each group


class DeleteGroupsRequest(_Message, frozen=True):
    group_ids: tuple[str, ...]


class DeleteGroupsResponse(_Message, frozen=True):
    results: tuple[DeleteGroupResponse, ...]


# -- ShareGroupHeartbeat (76), StreamsGroupHeartbeat (88): always refused ---------------------------------------------


class OtherProtocolRequest(_Message, frozen=True):
    """A member of a share group or a Streams group."""

    group_id: str
    member_id: str


class OtherProtocolResponse(_Message, frozen=True):
    error_code: int
    error_message: str | None = None


# -- ListOffsets (2), Fetch (1) ---------------------------------------------------------------------------------------


class ListOffsetsRequest(_Message, frozen=True):
    """(topic, ((partition, current_leader_epoch, timestamp), ...)); timestamp -1: latest, -2: earliest, ..."""

    replica_id: int
    isolation_level: int
    topics: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]


class ListOffsetsResponse(_Message, frozen=True):
    """(topic, ((partition, error_code, timestamp, offset, leader_epoch), ...))."""

    topics: tuple[tuple[str, tuple[tuple[int, int, int, int, int], ...]], ...]


class FetchTopic(_Message, frozen=True):
    name: str | None  # up to v12
    topic_id: bytes  # from v13 (KIP-516); zero before
    partitions: tuple[tuple[int, int, int], ...]  # (partition, current_leader_epoch, fetch_offset)


class FetchRequest(_Message, frozen=True):
    max_wait_ms: int
    min_bytes: int
    session_id: int
    session_epoch: int  # -1: no session (KIP-227)
    topics: tuple[FetchTopic, ...]


class FetchedTopic(_Message, frozen=True):
    """Partitions of an answer without records: (partition, error_code, high_watermark)."""

    name: str | None  # up to v12
    topic_id: bytes  # from v13
    partitions: tuple[tuple[int, int, int], ...]


class FetchResponse(_Message, frozen=True):
    error_code: int = 0
    session_id: int = 0  # 0: no session: the client sends every partition with every request
    topics: tuple[FetchedTopic, ...] = ()


# -- Produce (0): always refused --------------------------------------------------------------------------------------


class ProduceRequest(_Message, frozen=True):
    acks: int  # 0: the client expects no answer; Kafka closes its connection to say no
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class ProduceResponse(_Message, frozen=True):
    topics: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]  # (topic, ((partition, error_code), ...))
    error_message: str | None = None  # for every partition


# -- WriteTxnMarkers (27) ---------------------------------------------------------------------------------------------


class TransactionMarker(_Message, frozen=True):
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    transaction_version: int = 0  # v2+ (KIP-1228)


class WriteTxnMarkersRequest(_Message, frozen=True):
    markers: tuple[TransactionMarker, ...]


class WriteTxnMarkersResponse(_Message, frozen=True):
    """(producer_id, ((topic, ((partition, error_code), ...)), ...))."""

    markers: tuple[tuple[int, tuple[tuple[str, tuple[tuple[int, int], ...]], ...]], ...]


# -- DescribeProducers (61) -------------------------------------------------------------------------------------------


class DescribePartitionsProducersRequest(_Message, frozen=True):
    """(topic, (partition, ...))."""

    topics: tuple[tuple[str, tuple[int, ...]], ...]


class DescribePartitionsProducersResponse(_Message, frozen=True):
    """(topic, ((partition, what its leader says), ...))."""

    topics: tuple[tuple[str, tuple[tuple[int, DescribeProducersResponse], ...]], ...]
