"""Groups of the consumer protocol (KIP-848) as the records of `__consumer_offsets` describe them: the types of records,
and what they say. Their bytes are in `consumer_group_codec`, which is compiled: msgspec needs its Structs as Python
sees them (ADR 13).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

METADATA_TYPE = 3
PARTITION_METADATA_TYPE = 4
MEMBER_TYPE = 5
TARGET_METADATA_TYPE = 6
TARGET_MEMBER_TYPE = 7
CURRENT_TYPE = 8
REGEX_TYPE = 16
CONFIGS_TYPE = 9101

TYPES = frozenset(
    {
        METADATA_TYPE,
        PARTITION_METADATA_TYPE,
        MEMBER_TYPE,
        TARGET_METADATA_TYPE,
        TARGET_MEMBER_TYPE,
        CURRENT_TYPE,
        REGEX_TYPE,
        CONFIGS_TYPE,
    }
)

TopicPartitions: TypeAlias = tuple[tuple[bytes, tuple[int, ...]], ...]
"""(topic id, partitions) each."""


class ConsumerGroupMetadataValue(msgspec.Struct, frozen=True, gc=False):
    """`metadata_hash` of the subscribed topics (KIP-1101); 0: they are unknown, or there are none."""

    epoch: int
    metadata_hash: int = 0


class ClassicMemberMetadata(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a classic member in a consumer group. `supported_protocols`: (name, metadata)."""

    session_timeout_ms: int
    supported_protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMemberValue(msgspec.Struct, frozen=True, gc=False):
    """`classic` None: the member uses the consumer protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]  # sorted, as Kafka writes them
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None = None


class ConsumerGroupTargetMetadataValue(msgspec.Struct, frozen=True, gc=False):
    """`timestamp_ms`: when the assignment was computed; 0: unknown (a broker before 4.3)."""

    assignment_epoch: int
    timestamp_ms: int = 0


class ConsumerGroupTargetMemberValue(msgspec.Struct, frozen=True, gc=False):
    topic_partitions: TopicPartitions


class OwnedPartitions(msgspec.Struct, frozen=True, gc=False):
    """`assignment_epochs`: for each of the partitions the epoch at which the member got it; None: not written (a
    broker before 4.3), or not as many as partitions (Utils#assignmentFromTopicPartitions)."""

    topic_id: bytes
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


class ConsumerGroupCurrentValue(msgspec.Struct, frozen=True, gc=False):
    """`state`: 0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS, any other number UNKNOWN (MemberState)."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[OwnedPartitions, ...]
    pending_revocation: tuple[OwnedPartitions, ...]


class ConsumerGroupRegexValue(msgspec.Struct, frozen=True, gc=False):
    """The topics that a regular expression stands for. `version`: of the topics' metadata that it was resolved on."""

    topics: tuple[str, ...]  # sorted, as Kafka writes them
    version: int
    timestamp_ms: int


class GroupConfigsValue(msgspec.Struct, frozen=True, gc=False):
    """The configs that administrators have set for a group, whether it exists or not: (name, value), sorted."""

    configs: tuple[tuple[str, int], ...]


ConsumerGroupValue: TypeAlias = (
    ConsumerGroupMetadataValue
    | ConsumerGroupMemberValue
    | ConsumerGroupTargetMetadataValue
    | ConsumerGroupTargetMemberValue
    | ConsumerGroupCurrentValue
    | ConsumerGroupRegexValue
    | GroupConfigsValue
)


class ConsumerGroupRecord(msgspec.Struct, frozen=True, gc=False):
    """`type`: one of the types of this module. `name`: the member id, or the regular expression; "" for types that
    are about the group. `value` None: tombstone, or a value of type 4.
    """

    type: int
    group_id: str
    name: str
    value: ConsumerGroupValue | None
