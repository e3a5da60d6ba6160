"""Requests and responses of the group coordinator, free of protocol versions.

`wire` turns the bytes of every version into these and back; `groups` never sees a version number except where
Kafka's *behaviour* (not only its bytes) depends on it: those requests carry an `api_version` field. Names and
meanings are those of Kafka's message schemas. Times are milliseconds, `None` is null on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from muster_coordinator.requests.packed_offsets import AcceptedOffsets, FoundOffsets, HeldOffsets, PackedOffsets


class _Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all messages: immutable, cheap to build, not tracked by the garbage collector (messages hold no
    cycles)."""


# -- JoinGroup (11) ---------------------------------------------------------------------------------------------------


class JoinGroupRequest(_Message, frozen=True):
    """Source: JoinGroupRequest.json; `rebalance_timeout_ms` is the session timeout for v0 (KIP-62)."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # (name, metadata), in the member's order of preference
    reason: str | None
    client_id: str
    client_host: str  # Java's InetAddress text: "/127.0.0.1"
    api_version: int  # v4+: MEMBER_ID_REQUIRED (KIP-394); v9+: skip_assignment (KIP-814)


class JoinGroupMember(_Message, frozen=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(_Message, frozen=True):
    error_code: int
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinGroupMember, ...] = ()


# -- SyncGroup (14) ---------------------------------------------------------------------------------------------------


class SyncGroupRequest(_Message, frozen=True):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]  # (member_id, assignment)
    api_version: int  # v5+: null protocol type or name is INCONSISTENT_GROUP_PROTOCOL (KIP-559)


class SyncGroupResponse(_Message, frozen=True):
    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


# -- Heartbeat (12) ---------------------------------------------------------------------------------------------------


class HeartbeatRequest(_Message, frozen=True):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class HeartbeatResponse(_Message, frozen=True):
    error_code: int


# -- LeaveGroup (13) --------------------------------------------------------------------------------------------------


class LeavingMember(_Message, frozen=True):
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class LeaveGroupRequest(_Message, frozen=True):
    """Before v3 the request names one member; `wire` makes a batch of one of it and lifts its error to the top
    again."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(_Message, frozen=True):
    member_id: str
    group_instance_id: str | None
    error_code: int


class LeaveGroupResponse(_Message, frozen=True):
    error_code: int
    members: tuple[LeftMember, ...] = ()


# -- OffsetCommit (8) -------------------------------------------------------------------------------------------------


CommittedPartitions: TypeAlias = tuple[tuple[int, int, int, str | None], ...] | PackedOffsets
"""Plain tuples, because this is the hot path: (index, offset, leader_epoch, metadata or None); or packed."""

CommittedTopics: TypeAlias = tuple[tuple[str, CommittedPartitions], ...]

PartitionResults: TypeAlias = tuple[tuple[int, int], ...] | AcceptedOffsets
"""(partition, error_code)"""

CommitResults: TypeAlias = tuple[tuple[str, PartitionResults], ...]


class OffsetCommitRequest(_Message, frozen=True):
    group_id: str
    generation_id: int  # or member epoch; -1: none
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int  # v2-v4; -1: the coordinator's retention
    topics: CommittedTopics
    api_version: int  # v9+: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION for an unknown group


class OffsetCommitResponse(_Message, frozen=True):
    """The results in the request's order."""

    topics: CommitResults


class OffsetCommitByIdRequest(_Message, frozen=True):
    """The request from v10 on. The listener makes an OffsetCommitRequest of it, with names in place of the topic ids
    (16 bytes).
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[tuple[bytes, CommittedPartitions], ...]
    api_version: int


class OffsetCommitByIdResponse(_Message, frozen=True):
    topics: tuple[tuple[bytes, PartitionResults], ...]  # by id


def each_once(topics: Iterable[tuple[bytes, PartitionResults]]) -> tuple[tuple[bytes, PartitionResults], ...]:
    """The answers of a commit by topic id, of which some are known without the group: Kafka adds what the group answers
    to what it has answered for topics before, so each is there once."""
    found: dict[bytes, PartitionResults] = {}
    for topic_id, codes in topics:
        found[topic_id] = (*found[topic_id], *codes) if topic_id in found else codes
    return tuple(found.items())


# -- OffsetFetch (9) --------------------------------------------------------------------------------------------------


class OffsetFetchRequest(_Message, frozen=True):
    """One group. `wire` gives a list of these (one before v8)."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None  # None: every committed partition
    require_stable: bool


FetchedPartition: TypeAlias = tuple[int, int, int, str, int]
"""(partition, offset, leader_epoch, metadata, error_code)"""

FetchedPartitions: TypeAlias = tuple[FetchedPartition, ...] | FoundOffsets | HeldOffsets


class OffsetFetchResponse(_Message, frozen=True):
    group_id: str
    error_code: int
    topics: tuple[tuple[str, FetchedPartitions], ...] = ()


class OffsetFetchByIdRequest(_Message, frozen=True):
    """One group, from v10 on; see OffsetCommitByIdRequest."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: tuple[tuple[bytes, tuple[int, ...]], ...] | None
    require_stable: bool


class OffsetFetchByIdResponse(_Message, frozen=True):
    group_id: str
    error_code: int
    topics: tuple[tuple[bytes, FetchedPartitions], ...] = ()  # by id


# -- ListGroups (16) --------------------------------------------------------------------------------------------------


class ListGroupsRequest(_Message, frozen=True):
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(_Message, frozen=True):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str  # "classic": 4.1 answers in lower case


class ListGroupsResponse(_Message, frozen=True):
    error_code: int
    groups: tuple[ListedGroup, ...] = ()


# -- DescribeGroups (15) ----------------------------------------------------------------------------------------------


class DescribeGroupRequest(_Message, frozen=True):
    """One group of a DescribeGroups request."""

    group_id: str
    api_version: int  # v6+: GROUP_ID_NOT_FOUND with a message instead of state "Dead" (KIP-1043)


class DescribedMember(_Message, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(_Message, frozen=True):
    group_id: str
    error_code: int
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: int | None = None  # None: as the whole answer says


# -- DeleteGroups (42), OffsetDelete (47) -----------------------------------------------------------------------------


class DeleteGroupRequest(_Message, frozen=True):
    """One group of a DeleteGroups request."""

    group_id: str


class DeleteGroupResponse(_Message, frozen=True):
    group_id: str
    error_code: int


class OffsetDeleteRequest(_Message, frozen=True):
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class OffsetDeleteResponse(_Message, frozen=True):
    error_code: int
    topics: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()  # (topic, ((partition, error_code), ...))


# -- TxnOffsetCommit (28), WriteTxnMarkers (27) -----------------------------------------------------------------------


class TxnOffsetCommitRequest(_Message, frozen=True):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[tuple[str, tuple[tuple[int, int, int, str | None], ...]], ...]
    api_version: int  # v6+: GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH instead of ILLEGAL_GENERATION
    asked_at: int = -1  # log end of the partition when its part in the transaction was asked for; -1: it was not


class TxnOffsetCommitResponse(_Message, frozen=True):
    topics: CommitResults


class TxnOffsetCommitByIdRequest(_Message, frozen=True):
    """The request from v6 on. The listener makes a TxnOffsetCommitRequest of it, with names in place of topic ids."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[tuple[bytes, tuple[tuple[int, int, int, str | None], ...]], ...]
    api_version: int


class TxnOffsetCommitByIdResponse(_Message, frozen=True):
    topics: tuple[tuple[bytes, PartitionResults], ...]  # by id


class WriteTxnMarkerRequest(_Message, frozen=True):
    """One marker for this offsets partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int = 0  # from 2 on each transaction has its own epoch (KIP-890)


class WriteTxnMarkerResponse(_Message, frozen=True):
    error_code: int


# -- DescribeProducers ------------------------------------------------------------------------------------------------


class DescribeProducersRequest(_Message, frozen=True):
    """Asks for the producers of this offsets partition."""


class OpenProducer(_Message, frozen=True):
    """A producer with an open transaction. `start_offset`: of its first record in the log that is still pending.
    `last_ms`: of its last one, ms since 1970. `coordinator_epoch`: of the last marker; -1: none is known."""

    producer_id: int
    producer_epoch: int
    last_ms: int
    coordinator_epoch: int
    start_offset: int


class DescribeProducersResponse(_Message, frozen=True):
    error_code: int
    producers: tuple[OpenProducer, ...] = ()


# -- Events of the pod, without a response ----------------------------------------------------------------------------


class TopicsDeleted(_Message, frozen=True):
    """The offsets of partitions for which `exists(topic, partition)` is False are to be removed, but for those with
    another topic id than `id_of(topic)` (Kafka: GroupCoordinator#onPartitionsDeleted)."""

    exists: Callable[[str, int], bool]
    id_of: Callable[[str], bytes]
