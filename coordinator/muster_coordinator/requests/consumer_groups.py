"""Requests and responses of the consumer protocol (KIP-848), free of protocol versions. See `requests.groups`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

TopicPartitions: TypeAlias = tuple[bytes, tuple[int, ...]]
"""(topic id, partitions)."""

NamedPartitions: TypeAlias = tuple[bytes, str, tuple[int, ...]]
"""(topic id, topic, partitions)."""

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2
"""Member epoch of a static member that leaves to come back."""

UNKNOWN_MEMBER, CLASSIC_MEMBER, CONSUMER_MEMBER = -1, 0, 1
"""`DescribedConsumerMember.member_type` (KIP-1099)."""


class _Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all messages: immutable, cheap to build, not tracked by the garbage collector (messages hold no
    cycles)."""


# -- ConsumerGroupHeartbeat (68) --------------------------------------------------------------------------------------


class ConsumerGroupHeartbeatRequest(_Message, frozen=True):
    """Source: ConsumerGroupHeartbeatRequest.json. None (-1 for the time-out): not changed since the last heartbeat.
    `subscribed_topic_regex` is None in v0, which does not have it.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: tuple[TopicPartitions, ...] | None  # what the member owns
    client_id: str
    client_host: str  # Java's InetAddress text: "/127.0.0.1"
    api_version: int  # v1+: the member makes its id (KIP-1082)
    may_describe: Callable[[str], bool] | None = None  # a topic, by the rights of who asks; None: nobody is asked


class ConsumerGroupHeartbeatResponse(_Message, frozen=True):
    """`assignment` None: not told, it did not change."""

    error_code: int
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicPartitions, ...] | None = None


# -- ConsumerGroupDescribe (69) ---------------------------------------------------------------------------------------


class DescribeConsumerGroupRequest(_Message, frozen=True):
    """One group of a ConsumerGroupDescribeRequest."""

    group_id: str


class ConsumerGroupDescribeRequest(_Message, frozen=True):
    groups: tuple[DescribeConsumerGroupRequest, ...]
    include_authorized_operations: bool = False


class DescribedConsumerMember(_Message, frozen=True):
    """`assignment` includes what the member has still to revoke (KAFKA-20431)."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: tuple[NamedPartitions, ...]
    target_assignment: tuple[NamedPartitions, ...]
    member_type: int = UNKNOWN_MEMBER  # v1+


class DescribedConsumerGroup(_Message, frozen=True):
    """`authorized_operations` None: those of the whole response."""

    group_id: str
    error_code: int = 0
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()
    authorized_operations: int | None = None


_NOT_ASKED_FOR = -(2**31)


def without_operations(group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    """Leave the rights out, as Kafka does for a group that is not shown; DescribeGroups has them nevertheless."""
    return msgspec.structs.replace(group, authorized_operations=_NOT_ASKED_FOR)


class ConsumerGroupDescribeResponse(_Message, frozen=True):
    groups: tuple[DescribedConsumerGroup, ...]
    authorized_operations: int = _NOT_ASKED_FOR


# -- Regular expressions: what the coordinator asks of the pod, and what it learns ------------------------------------


class RegexesToResolve(_Message, frozen=True):
    """The topics that these expressions stand for are to be found (Kafka: TopicRegexResolver). `may_describe`: that of
    the member whose heartbeat asks for it."""

    group_id: str
    regexes: tuple[str, ...]
    may_describe: Callable[[str], bool] | None = None


class RegexesResolved(_Message, frozen=True):
    """An event: (expression, topics) each, sorted. `topics` None: nothing was found out, and may be asked for again.

    `version`: of the topics that were looked through. `resolved_ms`: wall clock before that, ms since 1970.
    """

    group_id: str
    topics: tuple[tuple[str, tuple[str, ...]], ...] | None
    version: int = -1
    resolved_ms: int = -1
