"""One group of the consumer protocol as its records describe it (Kafka: ConsumerGroup). `replay` is all that changes
it; what it needs of the past is in the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from muster_coordinator.groups.consumer.assignors.spec import NO_ASSIGNMENT, Assignment
from muster_coordinator.groups.consumer.member import (
    NEW_MEMBER,
    Current,
    Member,
    Owned,
    Subscription,
    current_of,
    subscription_of,
)
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    REGEX_TYPE,
    TARGET_MEMBER_TYPE,
    TARGET_METADATA_TYPE,
    ConsumerGroupCurrentValue,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupRegexValue,
    ConsumerGroupTargetMemberValue,
    ConsumerGroupTargetMetadataValue,
    ConsumerGroupValue,
)
from muster_coordinator.records.consumer_group_codec import encode_consumer_group_key, encode_consumer_group_value
from muster_coordinator.state_machine import Record

_K = TypeVar("_K")

FIRST_EPOCH = 1
"""Group and assignment epoch of a new group (KAFKA-20268): the first assignment has the next one."""

CONSUMER_GROUP_STATES = EMPTY, ASSIGNING, RECONCILING, STABLE_GROUP = "Empty", "Assigning", "Reconciling", "Stable"
"""ConsumerGroupState, as clients are told."""


class ConsumerGroup:
    """`epoch` 0: no record says anything of it yet. Member ids are keys of `members`, `current` and `targets`; a log
    may have one of them without the others."""

    __slots__ = (
        "classic_count",
        "classic_protocols",
        "current",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "owners",
        "regex_members",
        "regexes",
        "static_members",
        "subscriptions",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
        "topic_members",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.members: dict[str, ConsumerGroupMemberValue] = {}
        self.current: dict[str, Current] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ConsumerGroupRegexValue] = {}  # resolved
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.subscriptions: dict[Subscription, int] = {}  # -> members that have this one
        self.regex_members: dict[str, int] = {}  # expression -> members that subscribe to it
        self.topic_members: dict[str, int] = {}  # topic -> members that subscribe to it by name
        self.classic_count = 0  # members of the classic protocol
        self.classic_protocols: dict[str, int] = {}  # protocol name -> classic members that support it
        self.owners: dict[bytes, dict[int, str]] = {}  # topic id -> partition -> member id

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state}, epoch={self.epoch}, members={sorted(self.members)})"

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(self.current_of(member_id).is_at(self.target_epoch) for member_id in self.members):
            return STABLE_GROUP
        return RECONCILING

    def current_of(self, member_id: str) -> Current:
        return self.current.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_ASSIGNMENT)

    def member(self, member_id: str) -> Member | None:
        value = self.members.get(member_id)
        return None if value is None else Member(member_id, value, self.current_of(member_id))

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_members or any(topic in resolved.topics for resolved in self.regexes.values())

    def is_classic_without(self, member_ids: Iterable[str]) -> bool:
        """True if the members without these are at least one, and all of them use the classic protocol."""
        gone = [self.members[member_id].classic is None for member_id in member_ids]
        return len(gone) < len(self.members) and len(self.members) - self.classic_count == sum(gone)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """True if a classic member with these protocols can be in the group: one of them is supported by all classic
        members, or there are none."""
        counts = self.classic_protocols
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            counts.get(name, 0) == self.classic_count for name in names
        )

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, record_type: int, value: ConsumerGroupValue | None, name: str = "") -> Record:
        """A record of this group; its tombstone if `value` is None. `name`: see ConsumerGroupRecord."""
        return (
            encode_consumer_group_key(record_type, self.group_id, name),
            None if value is None else encode_consumer_group_value(value),
            ConsumerGroupRecord(record_type, self.group_id, name, value),
        )

    def records(self) -> Iterator[Record]:
        """Records of which a replay gives this very group."""
        if self.epoch:
            yield self.record(METADATA_TYPE, ConsumerGroupMetadataValue(self.epoch, self.metadata_hash))
        for member_id, value in self.members.items():
            yield self.record(MEMBER_TYPE, value, member_id)
        for regex, resolved in self.regexes.items():
            yield self.record(REGEX_TYPE, resolved, regex)
        if self.target_epoch:
            target = ConsumerGroupTargetMetadataValue(self.target_epoch, self.target_timestamp_ms)
            yield self.record(TARGET_METADATA_TYPE, target)
        for member_id, assignment in self.targets.items():
            yield self.record(TARGET_MEMBER_TYPE, ConsumerGroupTargetMemberValue(tuple(assignment.items())), member_id)
        for member_id, current in self.current.items():
            yield self.record(CURRENT_TYPE, current.to_value(), member_id)

    def tombstones(self) -> Iterator[Record]:
        """Yields a tombstone for everything that a record says of the group, the group itself at last, in Kafka's
        order.
        """
        yield from [self.record(CURRENT_TYPE, None, member_id) for member_id in self.current]
        yield from [self.record(TARGET_MEMBER_TYPE, None, member_id) for member_id in self.targets]
        yield self.record(TARGET_METADATA_TYPE, None)
        yield from [self.record(MEMBER_TYPE, None, member_id) for member_id in self.members]
        yield from [self.record(REGEX_TYPE, None, regex) for regex in self.regexes]
        yield self.record(METADATA_TYPE, None)

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a record of this group, but for the tombstone of the group itself. After a compaction they come in
        any order (KAFKA-19862)."""
        name = record.name
        match record.value:
            case ConsumerGroupMetadataValue(epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch, metadata_hash
            case ConsumerGroupMemberValue() as value:
                self._set_member(name, value)
            case ConsumerGroupTargetMetadataValue(epoch, timestamp_ms):
                self.target_epoch, self.target_timestamp_ms = epoch, timestamp_ms
            case ConsumerGroupTargetMemberValue(topic_partitions):
                self.targets[name] = dict(topic_partitions)
            case ConsumerGroupCurrentValue() as value:
                self._set_current(name, current_of(value))
            case ConsumerGroupRegexValue() as value:
                self.regexes[name] = value
            case None:
                self._forget(record.type, name)

    def _forget(self, record_type: int, name: str) -> None:
        if record_type == MEMBER_TYPE:
            self._set_member(name, None)
        elif record_type == TARGET_METADATA_TYPE:
            self.target_epoch = self.target_timestamp_ms = 0
        elif record_type == TARGET_MEMBER_TYPE:
            self.targets.pop(name, None)
        elif record_type == CURRENT_TYPE:
            self._set_current(name, None)
        elif record_type == REGEX_TYPE:
            self.regexes.pop(name, None)

    def _set_member(self, member_id: str, value: ConsumerGroupMemberValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
            self._count(before, -1)
        if value is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = value
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id
        self._count(value, 1)

    def _count(self, value: ConsumerGroupMemberValue, delta: int) -> None:
        add(self.subscriptions, subscription_of(value), delta)
        for topic in value.subscribed_topic_names:
            add(self.topic_members, topic, delta)
        if value.subscribed_topic_regex:
            add(self.regex_members, value.subscribed_topic_regex, delta)
        if value.classic is not None:
            self.classic_count += delta
            for name, _ in value.classic.supported_protocols:
                add(self.classic_protocols, name, delta)

    def _set_current(self, member_id: str, current: Current | None) -> None:
        before = self.current.pop(member_id, None)
        if before is not None:
            self._release(member_id, before.assigned)
            self._release(member_id, before.pending_revocation)
        if current is None:
            return
        self.current[member_id] = current
        self._take(member_id, current.assigned)
        self._take(member_id, current.pending_revocation)

    def _take(self, member_id: str, owned: Owned) -> None:
        for topic_id, epochs in owned.items():
            self.owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def _release(self, member_id: str, owned: Owned) -> None:
        """A partition that another member has by a later record stays with that one."""
        for topic_id, epochs in owned.items():
            owners = self.owners.get(topic_id, {})
            for partition in epochs:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.owners.pop(topic_id, None)


def add(counts: dict[_K, int], key: _K, delta: int) -> None:
    """A count of 0 is no entry."""
    count = counts.get(key, 0) + delta
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
