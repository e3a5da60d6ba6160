"""The tables of one offsets partition: groups of both kinds, offsets, and what the handlers need besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.states import GroupEvent, GroupState
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.effects import Effects, session_timer
from muster_coordinator.groups.offset_store import OffsetStore
from muster_coordinator.groups.packed import PackedGroup, decode_group, encode_group
from muster_coordinator.groups.topics import TopicCatalog
from muster_coordinator.records.group_metadata import (
    GroupMetadataRecord,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.state_machine import Record

WITH_MEMBERS: Final = 0xC3
"""The second byte of a packed group that has members: msgpack's true."""

_UNCOUNTED = dict.fromkeys(GroupState, 0)
"""The counts of groups that are only looked at. Nobody reads them."""


class Counters:
    """Events since the tables were created, with the meaning of Kafka's sensors in GroupCoordinatorMetrics."""

    __slots__ = ("offset_commits", "offset_deletions", "offset_expirations", "rebalances_completed", "sessions_ended")

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_deletions = 0
        self.offset_expirations = 0
        self.rebalances_completed = 0
        self.sessions_ended = 0


class GroupTables:
    """Data of one partition. `groups` are the classic ones; a group id is in one of `groups` and `consumers`.
    `converted`: live groups whose first records are about to be replayed, of a leader. `parked`: the groups that let
    nobody in now, of a leader. `new_member_suffix` returns the
    random part of a new member id.

    A group that is as its log has it is packed (`packed`), until a request asks for more than that. The search for
    expired offsets packs those that are so again. That is no state: only time and memory depend on it.
    """

    __slots__ = (
        "config",
        "consumers",
        "converted",
        "counters",
        "group_counts",
        "groups",
        "new_member_suffix",
        "offsets",
        "parked",
        "topics",
    )

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicCatalog,
        new_member_suffix: Callable[[], str],
        consumers: ConsumerTables,
    ) -> None:
        self.config = config
        self.consumers = consumers
        self.topics = topics
        self.new_member_suffix = new_member_suffix
        self.groups: dict[str, ClassicGroup | bytes] = {}
        self.converted: dict[str, ClassicGroup] = {}
        self.parked: set[str] = set()
        self.group_counts = dict.fromkeys(GroupState, 0)
        self.offsets = OffsetStore(config.max_producers, config.unpacked_groups)
        self.counters = Counters()

    def group(self, group_id: str) -> ClassicGroup | None:
        """Returns the group, unpacked, so that it can be changed; None if there is none."""
        group = self.groups.get(group_id)
        if isinstance(group, bytes):
            self._count_packed(group, -1)
            group = self.groups[group_id] = unpack_group(group_id, group, self.group_counts)
        return group

    def look_at(self, group_id: str) -> ClassicGroup | None:
        """Returns the group, for a question: a packed one stays packed."""
        group = self.groups.get(group_id)
        if isinstance(group, bytes):
            return unpack_group(group_id, group, _UNCOUNTED)
        return group

    def put_packed(self, group_id: str, packed: bytes) -> None:
        """The group is as its log has it; it takes the place of what was known of it."""
        self._uncount(self.groups.get(group_id))
        self.groups[group_id] = packed
        self._count_packed(packed, 1)

    def forget(self, group_id: str) -> None:
        """Remove the group, if there is one."""
        self._uncount(self.groups.pop(group_id, None))

    def _uncount(self, group: ClassicGroup | bytes | None) -> None:
        if isinstance(group, bytes):
            self._count_packed(group, -1)
        elif group is not None:
            group.transition(GroupEvent.REMOVED, group.state_timestamp_ms)

    def pack_if_settled(self, group: ClassicGroup) -> None:
        """Pack it if it is as its log has it: an empty group that nobody joins."""
        if group.is_settled and self.groups.get(group.group_id) is group:
            self.put_packed(group.group_id, pack_group(group.durable, group.state_timestamp_ms))

    def _count_packed(self, packed: bytes, delta: int) -> None:
        self.group_counts[packed_state(packed)] += delta

    @property
    def is_full(self) -> bool:
        """No further group may be created."""
        return len(self.groups) + len(self.consumers.groups) >= self.config.max_groups

    def create_group(self, group_id: str, now_ms: int) -> ClassicGroup | None:
        """Returns a new, empty group that no record mentions yet; None if the partition is full."""
        if self.is_full:
            return None
        return self.add_group(group_id, now_ms)

    def add_group(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Returns a new, empty group, however many there are: a replay is never refused."""
        group = self.groups[group_id] = ClassicGroup(group_id, now_ms, self.group_counts)
        return group

    def imply_group(self, group_id: str, now_ms: int) -> None:
        """The log has an offset of the group, which is not among the classic ones."""
        if group_id not in self.consumers.groups:
            self.put_packed(group_id, pack_group(None, now_ms))


def pack_group(durable: GroupMetadataValue | None, since_ms: int) -> bytes:
    """`durable`: its last record; None: only offsets imply it, since `since_ms`."""
    if durable is None:
        return encode_group(PackedGroup(False, "", since_ms))
    return encode_group(PackedGroup(bool(durable.members), durable.protocol_type, -1, durable))


def unpack_group(group_id: str, packed: bytes, counts: dict[GroupState, int]) -> ClassicGroup:
    found = decode_group(packed)
    group = ClassicGroup(group_id, found.since_ms, counts)
    group.logged = True
    if found.value is not None:
        group.restore(found.value)
    return group


def packed_state(packed: bytes) -> GroupState:
    return GroupState.STABLE if packed[1] == WITH_MEMBERS else GroupState.EMPTY


def group_record(group_id: str, value: GroupMetadataValue | None) -> Record:
    """Returns the record of a group's metadata; its tombstone if `value` is None."""
    return (
        encode_group_metadata_key(group_id),
        None if value is None else encode_group_metadata_value(value),
        GroupMetadataRecord(group_id, value),
    )


def tombstone_group(group: ClassicGroup, effects: Effects) -> None:
    """The group has no members; those that never came back with their id are forgotten with it."""
    for member_id in group.pending_members:
        effects.cancel_timer(session_timer(group.group_id, member_id))
    effects.record(group_record(group.group_id, None))
