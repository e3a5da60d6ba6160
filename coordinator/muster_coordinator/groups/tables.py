"""The tables of one offsets partition: groups of both kinds, offsets, and what the handlers need besides."""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.groups.classic_group import ClassicGroup
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.offsets import OffsetStore
from muster_coordinator.groups.states import GroupState
from muster_coordinator.groups.topics import TopicCatalog
from muster_coordinator.records.group_metadata import (
    GroupMetadataRecord,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.state_machine import Record


class Counters:
    """Events since the tables were created, with the meaning of Kafka's sensors in GroupCoordinatorMetrics."""

    __slots__ = ("offset_commits", "offset_deletions", "offset_expirations", "rebalances_completed")

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_deletions = 0
        self.offset_expirations = 0
        self.rebalances_completed = 0


class GroupTables:
    """Data of one partition. `groups` are the classic ones; a group id is in one of `groups` and `consumers`.
    `new_member_suffix` returns the random part of a new member id."""

    __slots__ = ("config", "consumers", "counters", "group_counts", "groups", "new_member_suffix", "offsets", "topics")

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
        self.groups: dict[str, ClassicGroup] = {}
        self.group_counts = dict.fromkeys(GroupState, 0)
        self.offsets = OffsetStore(config.max_producers, config.unpacked_groups)
        self.counters = Counters()

    def group(self, group_id: str) -> ClassicGroup | None:
        """Returns the group with its members, which `groups` alone may hold in encoded form; None if there is none."""
        group = self.groups.get(group_id)
        if group is not None and group.unbuilt:
            group.build()
        return group

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


def group_record(group_id: str, value: GroupMetadataValue | None) -> Record:
    """Returns the record of a group's metadata; its tombstone if `value` is None."""
    return (
        encode_group_metadata_key(group_id),
        None if value is None else encode_group_metadata_value(value),
        GroupMetadataRecord(group_id, value),
    )
