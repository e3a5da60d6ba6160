"""The target assignment of a group: who is meant to have which partitions (Kafka: TargetAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.assignors.java_order import DEFAULT_BUCKETS, strings_in_order
from muster_coordinator.groups.consumer.assignors.spec import Assignment, AssignorError, GroupSpec
from muster_coordinator.groups.consumer.assignors.table import assign
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import Subscription, subscription_of
from muster_coordinator.groups.consumer.subscriptions import are_alike, ids_of, names_of
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.consumer_group import (
    TARGET_MEMBER_TYPE,
    TARGET_METADATA_TYPE,
    ConsumerGroupMemberValue,
    ConsumerGroupTargetMemberValue,
    ConsumerGroupTargetMetadataValue,
)


def is_due(group: ConsumerGroup, config: ConsumerGroupConfig, now_ms: int) -> bool:
    """True if a target assignment may be computed: not within the interval after the last one (KIP-1263). A clock that
    went back delays nothing."""
    since_ms = now_ms - group.target_timestamp_ms
    return group.target_timestamp_ms == 0 or not 0 <= since_ms < config.assignment_interval_ms


def assignor_of(members: Iterable[ConsumerGroupMemberValue], config: ConsumerGroupConfig) -> str:
    """The assignor that most of the members ask for, or else the first one that is configured."""
    names = config.assignor_names
    asked: dict[str, int] = {}
    for value in members:
        if value.server_assignor in names:
            asked[value.server_assignor] = asked.get(value.server_assignor, 0) + 1
    return max(strings_in_order(asked, DEFAULT_BUCKETS), key=asked.__getitem__, default=names[0])


class Members(NamedTuple):
    """The members of a group once the present request is done, the subscriptions that they have, and what is meant for
    them so far."""

    values: Mapping[str, ConsumerGroupMemberValue]
    subscriptions: Collection[Subscription]
    targets: dict[str, Assignment]


def compute_target(
    state: ConsumerTables, group: ConsumerGroup, members: Members, epoch: int, effects: Effects, now_ms: int
) -> dict[str, Assignment]:
    """Records of what changes; returns the new targets. Raises GroupError if there is no assignment."""
    targets = members.targets
    try:
        assigned = assign(assignor_of(members.values.values(), state.config), _spec(state, group, members))
    except AssignorError as error:
        raise GroupError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment for epoch {epoch}: {error}",
        ) from error
    for member_id, assignment in assigned.items():
        before = targets.get(member_id)
        if before is None or not _same(before, assignment):
            value = ConsumerGroupTargetMemberValue(tuple(assignment.items()))
            effects.record(group.record(TARGET_MEMBER_TYPE, value, member_id))
    effects.record(group.record(TARGET_METADATA_TYPE, ConsumerGroupTargetMetadataValue(epoch, now_ms)))
    return assigned


def _spec(state: ConsumerTables, group: ConsumerGroup, members: Members) -> GroupSpec:
    """Looks for topics once for each subscription: a join costs little for each of the other members."""
    values, subscriptions, targets = members
    names = {each: names_of(each, group.regexes) for each in subscriptions}
    found = [state.topics.find(name) for name in {name for each in names.values() for name in each}]
    ids = {each: ids_of(names[each], state.topics) for each in subscriptions}
    if len(ids) == 1:
        (common,) = ids.values()
        topics = dict.fromkeys(values, common)
    else:
        topics = {member_id: ids[subscription_of(value)] for member_id, value in values.items()}
    counts = dict([each for each in found if each is not None])
    static = {each: value.instance_id for each, value in values.items() if value.instance_id is not None}
    return GroupSpec(topics, are_alike(subscriptions), counts, targets, static)


def _same(before: Assignment, after: Assignment) -> bool:
    return before is after or (
        before.keys() == after.keys() and all(set(before[topic_id]) == set(after[topic_id]) for topic_id in after)
    )
