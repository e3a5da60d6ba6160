"""A group of one protocol becomes one of the other while it has members (Kafka: group.consumer.migration.policy).

Upgrade: a consumer joins a group of classic consumers. Each of them keeps what it was assigned last, in an epoch that
is the generation, and is served by translation after that. Downgrade: the last consumer is gone; the classic members
keep what is meant for them, and rebalance. All records of either are one batch, so that a log has the group of before
or that of afterwards. Source: GroupMetadataManager of 4.3.1, #convertToConsumerGroup and #convertToClassicGroup.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.member import Member
from muster_coordinator.groups.classic.rebalance import prepare_rebalance, set_session_timer
from muster_coordinator.groups.classic.states import GroupEvent
from muster_coordinator.groups.classic.tables import GroupTables, group_record
from muster_coordinator.groups.consumer.embedded import (
    EmbeddedProtocolError,
    Partitions,
    Subscription,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import NO_PARTITIONS, STABLE, Current, Owned
from muster_coordinator.groups.consumer.removal import forget_timers
from muster_coordinator.groups.consumer.subscriptions import metadata_hash
from muster_coordinator.groups.consumer.tables import session_timer as consumer_session_timer
from muster_coordinator.groups.effects import Effects, join_timer, session_timer, sync_timer
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from muster_coordinator.records.batch import batch_bytes
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    TARGET_MEMBER_TYPE,
    TARGET_METADATA_TYPE,
    ClassicMemberMetadata,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupTargetMemberValue,
    ConsumerGroupTargetMetadataValue,
    ConsumerGroupValue,
)
from muster_coordinator.records.group_metadata import GroupMetadataValue
from muster_coordinator.requests.groups import JoinGroupResponse, SyncGroupResponse
from muster_coordinator.state_machine import Records

# -- upgrade ----------------------------------------------------------------------------------------------------------


def upgrade(state: GroupTables, group: ClassicGroup, effects: Effects) -> ConsumerGroup:
    """Records that make `group` a consumer group, which is returned. The classic one itself does not change: see
    `end_classic`. Raises GroupError."""
    _check_upgrade(state, group)
    subscriptions, having = _read_members(state, group)
    upgraded = ConsumerGroup(group.group_id)
    effects.record(group_record(group.group_id, None))
    for member in group.members.values():
        value = _consumer_value(member, subscriptions[member.member_id])
        _say(upgraded, effects, MEMBER_TYPE, value, member.member_id)
    epoch = group.generation
    new_hash = metadata_hash(upgraded, state.consumers.topics)
    _say(upgraded, effects, METADATA_TYPE, ConsumerGroupMetadataValue(epoch, new_hash))
    for member_id, each in having.items():
        target = tuple([(topic_id, tuple(partitions)) for topic_id, partitions in each.assigned.items()])
        _say(upgraded, effects, TARGET_MEMBER_TYPE, ConsumerGroupTargetMemberValue(target), member_id)
    _say(upgraded, effects, TARGET_METADATA_TYPE, ConsumerGroupTargetMetadataValue(epoch))
    for member_id, each in having.items():
        current = Current(epoch, epoch, STABLE, each.owned)
        _say(upgraded, effects, CURRENT_TYPE, current.to_value(), member_id)
    return upgraded


def _say(
    group: ConsumerGroup, effects: Effects, record_type: int, value: ConsumerGroupValue, member_id: str = ""
) -> None:
    """A record, replayed by a group that no log has yet."""
    record = group.record(record_type, value, member_id)
    effects.record(record)
    change = record[2]
    assert isinstance(change, ConsumerGroupRecord)
    group.replay(change)


def _check_upgrade(state: GroupTables, group: ClassicGroup) -> None:
    config = state.consumers.config
    why = None
    if not config.policy.upgrades:
        why = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        raise _cannot_upgrade(group, f"because {why}.")


def _cannot_upgrade(group: ClassicGroup, why: str) -> GroupError:
    return GroupError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group {why}"
    )


class _Having(NamedTuple):
    """`assigned`: the last assignment of a member, `owned`: all that it may have still."""

    assigned: Owned
    owned: Owned


def _read_members(state: GroupTables, group: ClassicGroup) -> tuple[dict[str, Subscription], dict[str, _Having]]:
    """The subscription of each member, and the partitions that it has. A cooperative member gives partitions back after
    the SyncGroup that no longer names them, and a rebalance that is cut short forgets assignments: until it joins anew,
    a member may have what it said that it had when it joined. (Kafka takes the assignment alone; a consumer would at
    once get what another member still reads.)"""
    subscriptions: dict[str, Subscription] = {}
    assigned: dict[str, Owned] = {}
    for member_id, member in group.members.items():
        try:
            assignment = read_assignment(member.assignment)
            subscriptions[member_id] = read_subscription(member.metadata(group.protocol or member.protocol_names[0]))
        except EmbeddedProtocolError as error:
            raise _cannot_upgrade(group, "because the embedded consumer protocol is malformed.") from error
        if assignment.has_user_data:
            raise _cannot_upgrade(
                group,
                "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a"
                " default assignor before re-attempting the upgrade.",
            )
        assigned[member_id] = _with_ids(state, assignment.partitions, group.generation, frozenset())
    taken = {(topic_id, p) for each in assigned.values() for topic_id, partitions in each.items() for p in partitions}
    having: dict[str, _Having] = {}
    for member_id, given in assigned.items():
        said = _with_ids(state, subscriptions[member_id].owned, group.generation, taken)
        taken |= {(topic_id, p) for topic_id, partitions in said.items() for p in partitions}
        owned = {
            topic_id: {**given.get(topic_id, NO_PARTITIONS), **said.get(topic_id, NO_PARTITIONS)}
            for topic_id in dict.fromkeys((*given, *said))
        }
        having[member_id] = _Having(given, owned)
    return subscriptions, having


def _with_ids(state: GroupTables, partitions: Partitions, epoch: int, taken: AbstractSet[tuple[bytes, int]]) -> Owned:
    """Returns the partitions of topics that exist, without what others have."""
    owned: Owned = {}
    for topic, each in partitions:
        found = state.consumers.topics.find(topic)
        if found is not None:
            free = [partition for partition in each if (found[0], partition) not in taken]
            if free:
                owned[found[0]] = dict.fromkeys(free, epoch)
    return owned


def _consumer_value(member: Member, subscription: Subscription) -> ConsumerGroupMemberValue:
    return ConsumerGroupMemberValue(
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )


def end_classic(group: ClassicGroup, effects: Effects) -> None:
    """The live side of an upgrade: who waits for a rebalance joins again, and sessions go on in the consumer group."""
    group_id = group.group_id
    for timer in (join_timer(group_id), sync_timer(group_id)):
        effects.cancel_timer(timer)
    for member_id in (*group.members, *sorted(group.pending_members)):
        effects.cancel_timer(session_timer(group_id, member_id))
    for member in group.members.values():
        join = group.take_join(member)
        if join is not None:
            effects.reply(join, JoinGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        if member.sync_token is not None:
            effects.reply(member.sync_token, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_token = None
        effects.set_timer(consumer_session_timer(group_id, member.member_id), member.session_timeout_ms)


# -- downgrade --------------------------------------------------------------------------------------------------------


def downgrades(state: GroupTables, member_count: int) -> bool:
    """True if a consumer group of so many members, all of them classic, becomes a classic group."""
    return state.consumers.config.policy.downgrades and member_count <= state.config.max_size


def downgrade(
    state: GroupTables,
    group: ConsumerGroup,
    leaving: Collection[str],
    rebalance: bool,
    effects: Effects,
    now_ms: int,
) -> None:
    """Records that make `group`, without those that leave, a classic group; their replay takes the live one that is
    made here. Raises GroupError."""
    classic = _classic_of(state, group, leaving, rebalance, now_ms)
    value = classic.to_value()
    if rebalance:
        value = msgspec.structs.replace(value, leader=None)
    records: list[Records] = [*effects.records, *group.tombstones(), group_record(group.group_id, value)]
    if batch_bytes(records) > state.config.max_record_bytes:
        classic.transition(GroupEvent.REMOVED, now_ms)
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Group {group.group_id} does not fit into one batch.")
    for record in group.tombstones():
        effects.record(record)
    effects.record(group_record(group.group_id, value))
    for member_id in group.members:
        forget_timers(state.consumers, group, member_id, effects)
    classic.become(value)
    state.converted[group.group_id] = classic
    for member in classic.members.values():
        set_session_timer(classic, member, effects)
    if rebalance:
        prepare_rebalance(state, classic, effects, now_ms)


def is_unassigned(value: GroupMetadataValue) -> bool:
    """True if the group became a classic one and has had no assignment by a leader since, as the log has it: a
    coordinator that loads it has it rebalance. Members whose epoch was the group's would not notice, and nobody would
    own what the last consumer had."""
    return bool(value.members) and value.leader is None


def _classic_of(
    state: GroupTables, group: ConsumerGroup, leaving: Collection[str], rebalance: bool, now_ms: int
) -> ClassicGroup:
    """The classic group that it will be. Members have what is meant for them; before a rebalance, in which nobody is
    told of that, what they have (Kafka: what is meant for them, and a consumer that joins at once would get what
    another member still reads). Raises GroupError."""
    members = [_classic_member(group, member_id) for member_id in group.members if member_id not in leaving]
    common = set.intersection(*[set(member.protocol_names) for member in members])
    if not common:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The classic members have no protocol in common.")
    classic = ClassicGroup(group.group_id, now_ms, state.group_counts)
    classic.protocol_type, classic.generation = CONSUMER_PROTOCOL_TYPE, group.epoch
    for member in members:
        classic.add(member)
    classic.protocol = classic.select_protocol()
    name_of = state.consumers.topics.name_of
    for member in members:
        has = _had_by(group, member.member_id) if rebalance else group.target_of(member.member_id)
        found = [(name_of(topic_id), each) for topic_id, each in has.items()]
        named = [(name, each) for name, each in found if name is not None]
        member.assignment = write_assignment(named, version_of(member.metadata(classic.protocol)))
    return classic


def _had_by(group: ConsumerGroup, member_id: str) -> dict[bytes, tuple[int, ...]]:
    """The partitions that the member has, and has still to give back."""
    current = group.current_of(member_id)
    both = current.assigned, current.pending_revocation
    return {
        topic_id: tuple(partition for owned in both for partition in owned.get(topic_id, NO_PARTITIONS))
        for topic_id in dict.fromkeys([topic_id for owned in both for topic_id in owned])
    }


def _classic_member(group: ConsumerGroup, member_id: str) -> Member:
    value = group.members[member_id]
    assert value.classic is not None
    protocols = value.classic.supported_protocols
    try:
        for _, metadata in protocols:
            version_of(metadata)
    except EmbeddedProtocolError as error:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group.group_id}: {error}."
        ) from error
    return Member(
        group.group_id,
        member_id,
        value.instance_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.classic.session_timeout_ms,
        protocols,
    )
