"""The next step of one member on its way from what it has to what is meant for it. Pure.

A partition is given to a member once nobody has it. A member that has one too many is told so, and keeps its epoch
until it says that it gave it back. Source: CurrentAssignmentBuilder; reference, section 4.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.assignors.spec import Assignment
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.member import (
    NO_PARTITIONS,
    NOTHING_OWNED,
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    Current,
    Owned,
)
from muster_coordinator.requests.consumer_groups import TopicPartitions

_UNKNOWN_STATE = (
    "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
)


class Goal(NamedTuple):
    """`target`: what is meant for the member at `epoch`. `subscribed`: ids of the topics that it subscribes to; of
    others it keeps nothing. `resubscribed`: whether they have just changed. `owners`: who has which partition."""

    epoch: int
    target: Assignment
    subscribed: AbstractSet[bytes]
    resubscribed: bool
    owners: Mapping[bytes, Mapping[int, str]]


def reconcile(current: Current, goal: Goal, reported: tuple[TopicPartitions, ...] | None) -> Current:
    """`reported`: the partitions that the member says it has; None: it does not say. Returns the same object if there
    is nothing to do. Raises GroupError FENCED_MEMBER_EPOCH."""
    if not current.is_known_state:
        if reported is None or reported:
            raise GroupError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
        return _advance(current, goal, reported)
    waits = current.state == UNREVOKED_PARTITIONS and _has_any(reported, current.pending_revocation)
    if waits or current.is_at(goal.epoch):
        return _drop_unsubscribed(current, goal, reported) if goal.resubscribed else current
    return _advance(current, goal, reported)


def _has_any(reported: tuple[TopicPartitions, ...] | None, partitions: Owned) -> bool:
    """True if the member, as far as is known, still has one of these partitions."""
    if reported is None:
        return True
    return any(
        partition in partitions.get(topic_id, NO_PARTITIONS)
        for topic_id, of_topic in reported
        for partition in of_topic
    )


def _drop_unsubscribed(current: Current, goal: Goal, reported: tuple[TopicPartitions, ...] | None) -> Current:
    """The member gives back what it does not subscribe to any more, without regard to its target (KAFKA-19431)."""
    dropped = {topic_id: owned for topic_id, owned in current.assigned.items() if topic_id not in goal.subscribed}
    if not dropped:
        return current
    assigned = {topic_id: owned for topic_id, owned in current.assigned.items() if topic_id not in dropped}
    pending = {**current.pending_revocation}
    for topic_id, owned in dropped.items():
        pending[topic_id] = {**pending.get(topic_id, NO_PARTITIONS), **owned}
    if _has_any(reported, pending):
        return Current(current.epoch, current.epoch, UNREVOKED_PARTITIONS, assigned, pending)
    return Current(current.epoch, current.epoch, current.state, assigned, current.pending_revocation)


def _advance(current: Current, goal: Goal, reported: tuple[TopicPartitions, ...] | None) -> Current:
    """Towards the target (Kafka: computeNextAssignment)."""
    kept: Owned = {}
    revoked: Owned = {}
    given: dict[bytes, list[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*goal.target, *current.assigned)):
        target = goal.target.get(topic_id, ()) if topic_id in goal.subscribed else ()
        has = current.assigned.get(topic_id, NO_PARTITIONS)
        wanted = frozenset(target)
        keeps = {partition: epoch for partition, epoch in has.items() if partition in wanted}
        if keeps:
            kept[topic_id] = keeps
        if len(keeps) < len(has):
            revoked[topic_id] = {partition: epoch for partition, epoch in has.items() if partition not in wanted}
        owners = goal.owners.get(topic_id, {})
        # What the member itself has still to give back is nobody else's.
        own = current.pending_revocation.get(topic_id, NO_PARTITIONS)
        lacking = [partition for partition in target if partition not in keeps]
        free = [partition for partition in lacking if partition not in owners or partition in own]
        waits = waits or len(free) < len(lacking)
        if free:
            given[topic_id] = free
    if revoked and _has_any(reported, revoked):
        return Current(current.epoch, current.epoch, UNREVOKED_PARTITIONS, kept, revoked)
    for topic_id, free in given.items():
        kept[topic_id] = {**kept.get(topic_id, NO_PARTITIONS), **dict.fromkeys(free, goal.epoch)}
    return Current(goal.epoch, current.epoch, UNRELEASED_PARTITIONS if waits else STABLE, kept, NOTHING_OWNED)
