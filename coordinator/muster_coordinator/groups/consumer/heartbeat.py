"""ConsumerGroupHeartbeat: a member joins, goes on, or leaves (KIP-848; reference, section 4.10).

A heartbeat takes in what changed about its member, gives the group a new target assignment if one is due, and takes
the member a step towards its own. Source: GroupMetadataManager#consumerGroupHeartbeat of 4.3.1.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.expressions import RegexChange, change_regex, to_look_for
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import NEW_MEMBER, NO_MEMBER_VALUE, NO_PARTITIONS, Current, Member
from muster_coordinator.groups.consumer.removal import (
    Fence,
    fence_members,
    leave,
    static_member,
    stop_waiting,
    unknown_member,
)
from muster_coordinator.groups.consumer.step import Step, check_room
from muster_coordinator.groups.consumer.tables import ConsumerTables, session_timer
from muster_coordinator.groups.consumer.target import assignor_of
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.consumer_group import MEMBER_TYPE, ConsumerGroupMemberValue
from muster_coordinator.requests.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RegexesToResolve,
)
from muster_coordinator.state_machine import Result, Token

_MEMBER_ID_REQUIRED_SINCE = 1  # KIP-1082


def heartbeat_refusal(request: ConsumerGroupHeartbeatRequest, config: ConsumerGroupConfig) -> GroupError | None:
    """The error of the request whatever the group is; None: there is none. In Kafka's order."""
    epoch = request.member_epoch
    needs_id = request.api_version >= _MEMBER_ID_REQUIRED_SINCE or epoch > 0 or epoch == LEAVING_EPOCH
    message = None
    if needs_id and not request.member_id.strip():
        message = "MemberId can't be empty."
    elif not request.group_id.strip():
        message = "GroupId can't be empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        message = "InstanceId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        message = "RackId can't be empty."
    elif epoch == JOINING_EPOCH:
        message = _join_error(request)
    elif epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        message = "InstanceId can't be null."
    elif epoch < LEAVING_STATIC_EPOCH:
        message = "MemberEpoch is invalid."
    if message is not None:
        return GroupError(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in config.assignor_names:
        supported = ", ".join(config.assignor_names)
        return GroupError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}.",
        )
    return None


def _join_error(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def consumer_heartbeat(
    state: ConsumerTables,
    request: ConsumerGroupHeartbeatRequest,
    token: Token,
    now_ms: int,
    group: ConsumerGroup | None = None,
    fence: Fence = fence_members,
) -> Result:
    """`group`: the one that the group will be by records that are not replayed yet; None: the one that there is."""
    try:
        refusal = heartbeat_refusal(request, state.config)
        if refusal is not None:
            raise refusal
        if request.member_epoch < JOINING_EPOCH:
            return leave(state, request, token, fence)
        return _Heartbeat(state, group or _find_group(state, request), request, token, now_ms).run()
    except GroupError as error:
        return Result(response=ConsumerGroupHeartbeatResponse(int(error.code), error.message))


def _find_group(state: ConsumerTables, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    group_id = request.group_id
    group = state.groups.get(group_id)
    if group is not None:
        return group
    if request.member_epoch != JOINING_EPOCH:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return ConsumerGroup(group_id)  # its records make it one of the groups


class _Heartbeat(Step):
    """One heartbeat of a member that is in the group, or joins it."""

    def __init__(
        self,
        state: ConsumerTables,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        token: Token,
        now_ms: int,
    ) -> None:
        super().__init__(state, group, Effects(token), now_ms)
        self._request = request
        self._joins = request.member_epoch == JOINING_EPOCH

    def run(self) -> Result:
        """Raises GroupError."""
        state, group, effects = self._state, self._group, self._effects
        check_room(state, group, self._request.member_id, self._request.instance_id)
        member = self._find_member()
        value = self._updated(member.value)
        if value != member.value:
            effects.record(group.record(MEMBER_TYPE, value, member.member_id))
        renamed = value.subscribed_topic_names != member.value.subscribed_topic_names
        regex_change = change_regex(group, member.value, value, effects)
        regexes = to_look_for(state, group, member.value, value, self._now_ms)
        changed = renamed or regex_change is RegexChange.RESOLVED or self._turns_assignor(member, value)
        epoch = self.bump(member, value, changed)
        resubscribed = renamed or regex_change is not RegexChange.NONE
        aim = self.aim(member, value, epoch)
        current = self.advance(member, value, aim, resubscribed, self._request.topic_partitions)
        if member.value.classic is not None:
            stop_waiting(state, group.group_id, member.member_id, effects)
        effects.set_timer(session_timer(group.group_id, member.member_id), self._config.session_timeout_ms)
        live = state.live(group.group_id)
        live.checked_version = state.topics.version
        if regexes:
            live.resolving = True
            asked = RegexesToResolve(group.group_id, regexes, self._request.may_describe)
            effects.reply(state.regexes.attempt(asked), None)
        return effects.answer(self._response(member, current))

    def _turns_assignor(self, member: Member, value: ConsumerGroupMemberValue) -> bool:
        """True if the group gets another assignor by what this member asks for. Only Kafka 4.4 assigns anew for it."""
        if value.server_assignor == member.value.server_assignor or not self._state.follows_4_4:
            return False
        before, after = self._group.members, self._members(member, value)
        return assignor_of(before.values(), self._state.config) != assignor_of(after.values(), self._state.config)

    # -- the member ----------------------------------------------------------------------------------------------------

    def _find_member(self) -> Member:
        group, instance_id = self._group, self._request.instance_id
        member_id = self._request.member_id or self._state.new_member_id()
        if instance_id is not None:
            return self._find_static_member(member_id, instance_id)
        member = group.member(member_id)
        if member is None:
            if not self._joins:
                unknown_member(group, member_id)
            return Member(member_id, NO_MEMBER_VALUE, NEW_MEMBER)
        self._check_epoch(member.current)
        return member

    def _find_static_member(self, member_id: str, instance_id: str) -> Member:
        group = self._group
        if not self._joins:
            member = static_member(group, instance_id, member_id)
            self._check_epoch(member.current)
            return member
        old = group.static_member(instance_id)
        if old is None:
            return group.member(member_id) or Member(member_id, NO_MEMBER_VALUE, NEW_MEMBER)
        if old.current.epoch != LEAVING_STATIC_EPOCH and old.value.classic is None:
            raise GroupError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance"
                f" id is owned by {old.member_id} member.",
            )
        return self.replace(old, member_id)

    def _check_epoch(self, current: Current) -> None:
        """A member may come with the epoch before its own, if it has nothing that it was not given: the answer with
        the new one was lost, perhaps."""
        said = self._request.member_epoch
        if self._joins or said == current.epoch:
            return
        if said < current.epoch and said == current.previous_epoch and self._has_only(current):
            return
        raise GroupError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {'greater' if said > current.epoch else 'smaller'} member epoch ({said})"
            f" than the one known by the group coordinator ({current.epoch}). The member must abandon all its"
            " partitions and rejoin.",
        )

    def _has_only(self, current: Current) -> bool:
        reported = self._request.topic_partitions
        return reported is not None and all(
            partition in current.assigned.get(topic_id, NO_PARTITIONS)
            for topic_id, partitions in reported
            for partition in partitions
        )

    def _updated(self, value: ConsumerGroupMemberValue) -> ConsumerGroupMemberValue:
        request, names = self._request, self._request.subscribed_topic_names
        return ConsumerGroupMemberValue(
            value.instance_id if request.instance_id is None else request.instance_id,
            value.rack_id if request.rack_id is None else request.rack_id,
            request.client_id,
            request.client_host,
            value.subscribed_topic_names if names is None else tuple(sorted(set(names))),
            value.subscribed_topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            value.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
            value.server_assignor if request.server_assignor is None else request.server_assignor,
        )

    def _response(self, member: Member, current: Current) -> ConsumerGroupHeartbeatResponse:
        request = self._request
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        assignment = None
        if self._joins or is_full or current.assigned != member.current.assigned:
            assignment = tuple([(topic_id, tuple(epochs)) for topic_id, epochs in current.assigned.items()])
        return ConsumerGroupHeartbeatResponse(
            0, None, member.member_id, current.epoch, self._config.heartbeat_interval_ms, assignment
        )
