"""The part that a consumer's heartbeat and a classic member's JoinGroup share: the group takes in what changed
about one member, gets a new target assignment if one is due, and the member takes a step towards its own."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.assignors.spec import Assignment
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import FIRST_EPOCH, ConsumerGroup, add
from muster_coordinator.groups.consumer.member import UNREVOKED_PARTITIONS, Current, Member, subscription_of
from muster_coordinator.groups.consumer.reconciliation import Goal, reconcile
from muster_coordinator.groups.consumer.removal import forget_member
from muster_coordinator.groups.consumer.subscriptions import ids_of, metadata_hash, names_of
from muster_coordinator.groups.consumer.tables import ConsumerTables, rebalance_timer
from muster_coordinator.groups.consumer.target import Members, compute_target, is_due
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    TARGET_MEMBER_TYPE,
    TARGET_METADATA_TYPE,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetMemberValue,
    ConsumerGroupTargetMetadataValue,
)
from muster_coordinator.requests.consumer_groups import TopicPartitions


def check_room(state: ConsumerTables, group: ConsumerGroup, member_id: str, instance_id: str | None = None) -> None:
    """Raises GroupError GROUP_MAX_SIZE_REACHED. With an `instance_id` that the group has, a member takes the place of
    another: Kafka 4.4 lets it."""
    max_size = state.config.max_size
    if len(group.members) >= max_size and member_id not in group.members:
        if state.follows_4_4 and instance_id is not None and group.static_member(instance_id) is not None:
            return
        raise GroupError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


class Step:
    """Puts records and timers into `effects`; the group itself does not change."""

    def __init__(self, state: ConsumerTables, group: ConsumerGroup, effects: Effects, now_ms: int) -> None:
        self._state, self._group, self._effects, self._now_ms = state, group, effects, now_ms
        self._config = state.config_of(group.group_id)
        self._replaced: str | None = None  # the member id that a static member had before
        self._target: Assignment | None = None  # what the replaced member was meant to have

    def replace(self, old: Member, member_id: str) -> Member:
        """The new member has what the old one had, and is meant to have."""
        group, effects = self._group, self._effects
        new = Member(member_id, old.value, old.current._replace(epoch=0, previous_epoch=0))
        self._replaced = old.member_id
        self._target = group.target_of(old.member_id)
        forget_member(self._state, group, old.member_id, effects)
        effects.record(group.record(MEMBER_TYPE, new.value, member_id))
        target = ConsumerGroupTargetMemberValue(tuple(self._target.items()))
        effects.record(group.record(TARGET_MEMBER_TYPE, target, member_id))
        effects.record(group.record(CURRENT_TYPE, new.current.to_value(), member_id))
        return new

    # -- epoch and target ----------------------------------------------------------------------------------------------

    def _members(self, member: Member, value: ConsumerGroupMemberValue) -> dict[str, ConsumerGroupMemberValue]:
        """The members once this heartbeat is done."""
        members = {**self._group.members, member.member_id: value}
        if self._replaced is not None and self._replaced != member.member_id:
            del members[self._replaced]
        return members

    def _gone(self, member: Member) -> list[ConsumerGroupMemberValue]:
        """The member, or the one that it replaces, as the group has it now."""
        members = self._group.members
        before = {member.member_id, self._replaced or member.member_id}
        return [members[member_id] for member_id in before if member_id in members]

    def bump(self, member: Member, value: ConsumerGroupMemberValue, changed: bool) -> int:
        """The group epoch. It goes up if a subscription or a topic of one has changed."""
        group, topics = self._group, self._state.topics
        is_new = group.epoch == 0
        epoch = group.epoch or FIRST_EPOCH
        new_hash = group.metadata_hash
        if is_new or changed or self._state.live(group.group_id).checked_version != topics.version:
            new_hash = metadata_hash(group, topics, self._gone(member), [value])
        if changed or new_hash != group.metadata_hash:
            epoch += 1
        elif not is_new:
            return epoch
        self._effects.record(group.record(METADATA_TYPE, ConsumerGroupMetadataValue(epoch, new_hash)))
        if epoch == FIRST_EPOCH:
            self._effects.record(group.record(TARGET_METADATA_TYPE, ConsumerGroupTargetMetadataValue(epoch)))
        return epoch

    def aim(self, member: Member, value: ConsumerGroupMemberValue, epoch: int) -> tuple[int, Assignment]:
        """(epoch of the target assignment, what it means for this member)."""
        group = self._group
        target = group.target_of(member.member_id) if self._target is None else self._target
        target_epoch = group.target_epoch or FIRST_EPOCH
        if epoch <= target_epoch or not is_due(group, self._config, self._now_ms):
            return target_epoch, target
        subscriptions = dict(group.subscriptions)
        for each in self._gone(member):
            add(subscriptions, subscription_of(each), -1)
        add(subscriptions, subscription_of(value), 1)
        targets = dict(group.targets)
        if self._replaced is not None:
            targets.pop(self._replaced, None)
            targets[member.member_id] = target
        members = Members(self._members(member, value), subscriptions, targets)
        assigned = compute_target(self._state, group, members, epoch, self._effects, self._now_ms)
        return epoch, assigned[member.member_id]

    # -- what the member has -------------------------------------------------------------------------------------------

    def advance(
        self,
        member: Member,
        value: ConsumerGroupMemberValue,
        aim: tuple[int, Assignment],
        resubscribed: bool,
        reported: tuple[TopicPartitions, ...] | None,
    ) -> Current:
        """`reported`: see `reconcile`. Raises GroupError."""
        group = self._group
        subscribed = frozenset(ids_of(names_of(subscription_of(value), group.regexes), self._state.topics))
        goal = Goal(*aim, subscribed, resubscribed, group.owners)
        current = reconcile(member.current, goal, reported)
        self._record_current(member, value, current)
        return current

    def _record_current(self, member: Member, value: ConsumerGroupMemberValue, current: Current) -> None:
        group, effects, member_id = self._group, self._effects, member.member_id
        if current == member.current:
            return
        effects.record(group.record(CURRENT_TYPE, current.to_value(), member_id))
        if value.classic is not None:
            return  # it has a time to join and a time to sync instead
        timer = rebalance_timer(group.group_id, member_id)
        if current.state == UNREVOKED_PARTITIONS:
            effects.set_timer(timer, value.rebalance_timeout_ms)
        else:
            effects.cancel_timer(timer)
