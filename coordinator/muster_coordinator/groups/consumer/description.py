"""ConsumerGroupDescribe (KIP-848; Kafka: ConsumerGroup#asDescribedGroup)."""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import Owned
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.consumer.target import assignor_of
from muster_coordinator.requests.consumer_groups import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    DescribeConsumerGroupRequest,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    NamedPartitions,
)
from muster_coordinator.state_machine import Result, Token


def describe_consumer_group(
    state: ConsumerTables, request: DescribeConsumerGroupRequest, _token: Token, _now_ms: int
) -> Result:
    group_id = request.group_id
    group = state.groups.get(group_id)
    if group is None:
        code = int(ErrorCode.GROUP_ID_NOT_FOUND)
        return Result(response=DescribedConsumerGroup(group_id, code, f"Group {group_id} not found."))
    return Result(
        response=DescribedConsumerGroup(
            group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=assignor_of(group.members.values(), state.config),
            members=tuple([_described(state, group, member_id) for member_id in group.members]),
        )
    )


def _described(state: ConsumerTables, group: ConsumerGroup, member_id: str) -> DescribedConsumerMember:
    value, current = group.members[member_id], group.current_of(member_id)
    return DescribedConsumerMember(
        member_id,
        value.instance_id,
        value.rack_id,
        current.epoch,
        value.client_id,
        value.client_host,
        value.subscribed_topic_names,
        value.subscribed_topic_regex,
        _named(state, _all_of(current.assigned, current.pending_revocation).items()),
        _named(state, group.target_of(member_id).items()),
        CONSUMER_MEMBER if value.classic is None else CLASSIC_MEMBER,
    )


def _all_of(assigned: Owned, pending: Owned) -> dict[bytes, tuple[int, ...]]:
    return {
        topic_id: (*assigned.get(topic_id, ()), *pending.get(topic_id, ()))
        for topic_id in dict.fromkeys((*assigned, *pending))
    }


def _named(state: ConsumerTables, partitions: Iterable[tuple[bytes, tuple[int, ...]]]) -> tuple[NamedPartitions, ...]:
    """Topics that are gone have no name, and are left out."""
    named = [(topic_id, state.topics.name_of(topic_id), each) for topic_id, each in partitions]
    return tuple([(topic_id, name, each) for topic_id, name, each in named if name is not None])
