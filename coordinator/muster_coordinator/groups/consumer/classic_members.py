"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat, translated.

A generation is a member epoch. JoinGroup takes a member a step on, as a heartbeat does a consumer, and is answered at
once, without leader and members: the assignment is the coordinator's. Heartbeat says REBALANCE_IN_PROGRESS whenever the
member has to take another step, which it does by joining again; it has a time for that, and one for SyncGroup
afterwards. Source: GroupMetadataManager of 4.3.1, #classicGroupJoinToConsumerGroup and what follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.embedded import (
    EmbeddedProtocolError,
    Partitions,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.expressions import RegexChange, change_regex
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import (
    NEW_MEMBER,
    NO_MEMBER_VALUE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    Current,
    Member,
)
from muster_coordinator.groups.consumer.removal import static_member, stop_waiting, unknown_member
from muster_coordinator.groups.consumer.step import Step, check_room
from muster_coordinator.groups.consumer.subscriptions import NO_TOPICS, metadata_hash
from muster_coordinator.groups.consumer.tables import (
    ConsumerTables,
    join_timer,
    rebalance_timer,
    session_timer,
    sync_timer,
)
from muster_coordinator.groups.consumer.target import is_due
from muster_coordinator.groups.consumer.topics import ConsumerTopics
from muster_coordinator.groups.effects import Effects
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from muster_coordinator.records.consumer_group import (
    MEMBER_TYPE,
    ClassicMemberMetadata,
    ConsumerGroupMemberValue,
    ConsumerGroupRecord,
)
from muster_coordinator.requests.consumer_groups import TopicPartitions
from muster_coordinator.requests.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from muster_coordinator.state_machine import Result, Token

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394

Downgrade: TypeAlias = Callable[[ConsumerGroup, bool, Effects], None]
"""Makes a group, as it will be, a classic one; whether it has to rebalance then. Raises GroupError."""


def join_classic_member(
    state: ConsumerTables,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    token: Token,
    now_ms: int,
    downgrade: Downgrade | None,
) -> Result:
    """`downgrade` None: a static member that takes the place of the last consumer does not make the group a classic
    one."""
    try:
        return _Join(state, group, request, token, now_ms).run(downgrade)
    except GroupError as error:
        return Result(response=JoinGroupResponse(error_code=error.code))


class _Join(Step):
    def __init__(
        self, state: ConsumerTables, group: ConsumerGroup, request: JoinGroupRequest, token: Token, now_ms: int
    ) -> None:
        super().__init__(state, group, Effects(token), now_ms)
        self._request = request

    def run(self, downgrade: Downgrade | None) -> Result:
        """Raises GroupError."""
        state, group, request, effects = self._state, self._group, self._request, self._effects
        member_id = request.member_id or state.new_member_id()
        check_room(state, group, member_id)
        if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            raise GroupError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )
        is_dynamic = request.group_instance_id is None
        if is_dynamic and not request.member_id and request.api_version >= _MEMBER_ID_REQUIRED_SINCE:
            return effects.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        member = self._find_member(member_id)
        subscription = self._subscription()
        value = self._updated(member.value, subscription)
        if value != member.value:
            effects.record(group.record(MEMBER_TYPE, value, member.member_id))
        renamed = value.subscribed_topic_names != member.value.subscribed_topic_names
        changed = change_regex(group, member.value, value, effects) is not RegexChange.NONE or renamed
        epoch = self.bump(member, value, changed)
        state.live(group.group_id).checked_version = state.topics.version
        owned = _with_ids(subscription.owned, state.topics)
        if downgrade is not None and self._takes_the_place_of_the_last_consumer():
            current = self._become_classic(member, value, epoch, changed, owned, downgrade)
        else:
            current = self.advance(member, value, self.aim(member, value, epoch), changed, owned)
            self._start_timers(member.member_id, value)
        return effects.answer(
            JoinGroupResponse(
                error_code=ErrorCode.NONE,
                generation_id=current.epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=request.protocols[0][0],
                member_id=member.member_id,
            )
        )

    def _find_member(self, member_id: str) -> Member:
        group, instance_id = self._group, self._request.group_instance_id
        new = Member(member_id, NO_MEMBER_VALUE, NEW_MEMBER)
        if instance_id is None:
            return group.member(member_id) or new
        if self._request.member_id:
            return static_member(group, instance_id, member_id)
        old = group.static_member(instance_id)
        return new if old is None else self.replace(old, member_id)

    def _subscription(self) -> Subscription:
        """All protocols of a member have the same, as Kafka takes it."""
        try:
            return read_subscription(self._request.protocols[0][1])
        except EmbeddedProtocolError as error:
            follows_4_4 = self._state.follows_4_4
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if follows_4_4 else ErrorCode.UNKNOWN_SERVER_ERROR
            raise GroupError(code, str(error)) from error

    def _updated(self, value: ConsumerGroupMemberValue, subscription: Subscription) -> ConsumerGroupMemberValue:
        request = self._request
        return ConsumerGroupMemberValue(
            value.instance_id if request.group_instance_id is None else request.group_instance_id,
            subscription.rack_id or value.rack_id,
            request.client_id,
            request.client_host,
            tuple(sorted(set(subscription.topics))),
            "",  # the classic protocol has no expressions
            value.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
            value.server_assignor,
            ClassicMemberMetadata(request.session_timeout_ms, request.protocols),
        )

    def _takes_the_place_of_the_last_consumer(self) -> bool:
        """True if a static member comes back by the classic protocol, which all other members use already."""
        if self._request.group_instance_id is None:
            return False
        old = self._group.static_member(self._request.group_instance_id)
        if old is None:
            return False
        return len(self._group.members) - self._group.classic_count == (old.value.classic is None)

    def _become_classic(
        self,
        member: Member,
        value: ConsumerGroupMemberValue,
        epoch: int,
        changed: bool,
        owned: tuple[TopicPartitions, ...],
        downgrade: Downgrade,
    ) -> Current:
        """The group becomes classic without a rebalance if the assignment that there is holds, and everybody has come
        to it. (Kafka gives out what is meant for the members in any case; this one would get what another one still
        reads.)"""
        group, effects = self._group, self._effects
        rebalance = group.target_epoch < epoch
        current = member.current
        if not rebalance:
            current = self.advance(member, value, self.aim(member, value, epoch), changed, owned)
        after = ConsumerGroup(group.group_id)
        for _, _, change in (*group.records(), *effects.records):
            assert isinstance(change, ConsumerGroupRecord)
            after.replay(change)
        downgrade(after, rebalance or not _is_settled(after), effects)
        return current

    def _start_timers(self, member_id: str, value: ConsumerGroupMemberValue) -> None:
        """A member that used the consumer protocol until now has no time for its revocation any more."""
        group_id, effects = self._group.group_id, self._effects
        stop_waiting(self._state, group_id, member_id, effects)
        effects.cancel_timer(rebalance_timer(group_id, member_id))
        effects.set_timer(session_timer(group_id, member_id), self._request.session_timeout_ms)
        effects.set_timer(sync_timer(group_id, member_id), max(value.rebalance_timeout_ms, 0))


def _is_settled(group: ConsumerGroup) -> bool:
    """True if every member has its target assignment, and nothing to give back."""
    return all(group.current_of(member_id).is_at(group.target_epoch) for member_id in group.members)


def _with_ids(partitions: Partitions, topics: ConsumerTopics) -> tuple[TopicPartitions, ...]:
    """The partitions with the ids of their topics; those that do not exist are left out."""
    found = [(topics.find(topic), each) for topic, each in partitions]
    return tuple([(topic[0], each) for topic, each in found if topic is not None])


# -- SyncGroup --------------------------------------------------------------------------------------------------------


def sync_classic_member(state: ConsumerTables, group: ConsumerGroup, request: SyncGroupRequest, token: Token) -> Result:
    effects = Effects(token)
    try:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        _check_protocol(classic, request)
        if group.target_epoch > member.current.epoch and member.current.state != UNREVOKED_PARTITIONS:
            _await_join(state, group, member, effects)
            return effects.answer(SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
    except GroupError as error:
        return Result(response=SyncGroupResponse(error.code))
    effects.cancel_timer(sync_timer(group.group_id, member.member_id))
    effects.set_timer(session_timer(group.group_id, member.member_id), classic.session_timeout_ms)
    assignment = _assignment(state, member.current, classic)
    return effects.answer(SyncGroupResponse(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment))


def _check_protocol(classic: ClassicMemberMetadata, request: SyncGroupRequest) -> None:
    protocol_type, protocol_name = request.protocol_type, request.protocol_name
    if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (
        None,
        classic.supported_protocols[0][0],
    ):
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol is not that of the JoinGroup.")


def _assignment(state: ConsumerTables, current: Current, classic: ClassicMemberMetadata) -> bytes:
    """The assignment in the version of the member's subscription. Topics that are gone have no name: none is in it."""
    version = version_of(classic.supported_protocols[0][1])
    named = [(state.topics.name_of(topic_id), partitions) for topic_id, partitions in current.assigned.items()]
    return write_assignment([(name, partitions) for name, partitions in named if name is not None], version)


# -- Heartbeat --------------------------------------------------------------------------------------------------------


def heartbeat_classic_member(
    state: ConsumerTables, group: ConsumerGroup, request: HeartbeatRequest, token: Token, now_ms: int
) -> Result:
    try:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    except GroupError as error:
        return Result(response=HeartbeatResponse(error.code))
    effects = Effects(token)
    effects.set_timer(session_timer(group.group_id, member.member_id), classic.session_timeout_ms)
    if not _has_to_join(group, member) and not _lacks_target(state, group, now_ms):
        return effects.answer(HeartbeatResponse(ErrorCode.NONE))
    _await_join(state, group, member, effects)
    return effects.answer(HeartbeatResponse(ErrorCode.REBALANCE_IN_PROGRESS))


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    """True if the member can take a step towards its target by joining."""
    current = member.current
    if current.epoch < group.target_epoch or current.state == UNREVOKED_PARTITIONS:
        return True
    return current.state == UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    return any(
        partition not in member.current.assigned.get(topic_id, ()) and partition in group.owners.get(topic_id, ())
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def _lacks_target(state: ConsumerTables, group: ConsumerGroup, now_ms: int) -> bool:
    """True if the group needs a new target assignment, for which a member has to join: a member has gone, or a
    topic has grown. Where there are consumers, the next of their heartbeats computes it. (Kafka lets no classic member
    do so before another one joins; what the one that has gone had would be nobody's until then.)"""
    if group.classic_count < len(group.members) or not is_due(group, state.config_of(group.group_id), now_ms):
        return False
    if group.epoch > group.target_epoch:
        return True
    live = state.live(group.group_id)
    if live.checked_version == state.topics.version:
        return False
    new_hash = metadata_hash(group, state.topics)
    if new_hash == NO_TOPICS:
        return False  # nobody has to hurry, and it may be that they are not known yet
    if new_hash == group.metadata_hash:
        live.checked_version = state.topics.version
    return new_hash != group.metadata_hash


# -- what they share --------------------------------------------------------------------------------------------------


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[Member, ClassicMemberMetadata]:
    """Raises GroupError."""
    if instance_id is None:
        member = group.member(member_id) or unknown_member(group, member_id)
    else:
        member = static_member(group, instance_id, member_id)
    classic = member.value.classic
    if classic is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation_id != member.current.epoch:
        raise GroupError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.current.epoch}"
            f" of member {member_id}.",
        )
    return member, classic


def _await_join(state: ConsumerTables, group: ConsumerGroup, member: Member, effects: Effects) -> None:
    """Its time runs from the first answer that says so."""
    awaited = state.live(group.group_id).awaited
    if member.member_id not in awaited:
        awaited.add(member.member_id)
        timeout_ms = max(member.value.rebalance_timeout_ms, 0)
        effects.set_timer(join_timer(group.group_id, member.member_id), timeout_ms)
