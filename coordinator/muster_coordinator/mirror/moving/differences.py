"""The differences between Kafka's answers about a group and those of the mirror, in words. Pure.

All that DescribeGroups or ConsumerGroupDescribe and OffsetFetch show counts, each byte of it, but not the order in
which it comes.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.requests.consumer_groups import (
    DescribedConsumerMember,
    NamedPartitions,
)
from muster_coordinator.requests.groups import (
    DescribedGroup,
    DescribedMember,
    FetchedPartition,
    OffsetFetchResponse,
)


def difference_of(theirs: GroupAtKafka, ours: GroupAtKafka) -> str:
    """The first difference; "": there is none. Configs are not looked at."""
    if theirs.describing != ours.describing:
        return f"{theirs.describing} describes it there, and {ours.describing} here"
    ours_by_name = dict(_fields(ours))
    for what, value in _fields(theirs):
        if value != ours_by_name[what]:
            return f"the {what} is {value!r} there and {ours_by_name[what]!r} here"
    different = _of_members(theirs.described.members, ours.described.members)
    return different or difference_of_offsets(theirs.fetched, ours.fetched)


def _fields(group: GroupAtKafka) -> Iterable[tuple[str, object]]:
    described = group.described
    yield f"error code of {group.describing}", int(described.error_code)
    yield "state", described.group_state
    if isinstance(described, DescribedGroup):
        yield "protocol type", described.protocol_type
        yield "protocol", described.protocol_data
    else:
        yield "group epoch", described.group_epoch
        yield "assignment epoch", described.assignment_epoch
        yield "assignor", described.assignor_name
    yield "error code of OffsetFetch", int(group.fetched.error_code)


def _of_members(
    theirs: Iterable[DescribedMember] | Iterable[DescribedConsumerMember],
    ours: Iterable[DescribedMember] | Iterable[DescribedConsumerMember],
) -> str:
    there, here = ({each.member_id: _comparable(each) for each in members} for members in (theirs, ours))
    for member_id in sorted({*there, *here}):
        if there.get(member_id) != here.get(member_id):
            return f"member {member_id[:100]!r} is {_where(member_id in there, member_id in here)}"
    return ""


def _comparable(member: DescribedMember | DescribedConsumerMember) -> object:
    if isinstance(member, DescribedMember):
        return member
    return (
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        frozenset(member.subscribed_topic_names),
        member.subscribed_topic_regex or "",
        _places(member.assignment),
        _places(member.target_assignment),
        member.member_type,
    )


def _places(topics: Iterable[NamedPartitions]) -> frozenset[tuple[bytes, str, int]]:
    return frozenset((topic_id, name, index) for topic_id, name, partitions in topics for index in partitions)


def difference_of_offsets(theirs: OffsetFetchResponse, ours: OffsetFetchResponse) -> str:
    """The first difference; "": there is none."""
    there, here = _by_partition(theirs), _by_partition(ours)
    for place in sorted({*there, *here}):
        if there.get(place) != here.get(place):
            topic, partition = place
            return f"the offset of {topic}-{partition} is {_where(place in there, place in here)}"
    return ""


def _by_partition(fetched: OffsetFetchResponse) -> dict[tuple[str, int], FetchedPartition]:
    return {(topic, each[0]): each for topic, partitions in fetched.topics for each in partitions}


def _where(there: bool, here: bool) -> str:
    if there and here:
        return "another one there than here"
    return "there and not here" if there else "here and not there"
