"""All that replay has built, in a form that can be compared: for tests and diagnosis."""

from __future__ import annotations

from dataclasses import dataclass

from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.offset_store import Stored
from muster_coordinator.records.group_metadata import GroupMetadataValue


@dataclass(frozen=True)
class DurableState:
    """`consumers`: records of the groups of the consumer protocol, by their keys. `own_configs`: what is set for
    groups.

    `implied_groups` have no record of their own: their committed offsets imply them. A compacted log may lack groups
    whose offsets have all been removed, and the epochs of producers and of their coordinators whose records were
    removed. Everything else is equal to the state of the whole log.
    """

    groups: dict[str, GroupMetadataValue]
    consumers: dict[str, dict[bytes, bytes | None]]
    own_configs: dict[str, dict[str, int]]
    implied_groups: frozenset[str]
    committed: dict[tuple[str, str, int], Stored]
    pending: dict[tuple[int, str, str, int], Stored]
    producer_epochs: dict[int, int]
    coordinator_epochs: dict[int, int]


def durable_state(state: GroupTables) -> DurableState:
    """Equal for equal logs."""
    groups = {group_id: group for group_id in state.groups if (group := state.look_at(group_id)) is not None}
    offsets = state.offsets
    return DurableState(
        groups={group_id: group.durable for group_id, group in groups.items() if group.durable is not None},
        consumers={group_id: _records_of(group) for group_id, group in state.consumers.groups.items()},
        own_configs=dict(state.consumers.own_configs),
        implied_groups=frozenset(g for g, group in groups.items() if group.logged and group.durable is None),
        committed={
            (group_id, topic, partition): stored
            for group_id in offsets.committed
            for topic, of_topic in offsets.of_group(group_id).items()
            for partition, stored in of_topic.items()
        },
        pending={
            (producer_id, group_id, topic, partition): stored
            for producer_id, of_producer in offsets.pending.items()
            for group_id, of_group in of_producer.items()
            for topic, of_topic in of_group.items()
            for partition, stored in of_topic.items()
        },
        producer_epochs=dict(offsets.producer_epochs),
        coordinator_epochs=dict(offsets.coordinator_epochs),
    )


def _records_of(group: ConsumerGroup) -> dict[bytes, bytes | None]:
    return {key: value for key, value, _ in group.records()}
