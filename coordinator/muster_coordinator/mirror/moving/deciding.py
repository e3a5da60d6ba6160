"""The end of a group's move: what Kafka says of it is compared with what the mirror has, and its route is appended, in
one operation of the shard. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from muster_coordinator.mirror.moving.move import Move
from muster_coordinator.requests.groups import (
    DescribedGroup,
    DescribedMember,
    FetchedPartition,
    OffsetFetchResponse,
)


@dataclass(frozen=True)
class DecideRequest:
    """`described`, `fetched`: Kafka's answers, asked for in `COMPARING`."""

    group_id: str
    move: Move
    described: DescribedGroup
    fetched: OffsetFetchResponse


class DecideResponse(msgspec.Struct, frozen=True, gc=False):
    """`reason`: why nothing was appended; "": the route was, and is committed."""

    reason: str


class BeginSessionsRequest(msgspec.Struct, frozen=True, gc=False):
    """The sessions of a group's members begin, if Muster serves it. What was appended before is committed with the
    answer."""

    group_id: str


class BeginSessionsResponse(msgspec.Struct, frozen=True, gc=False):
    at_muster: bool


def difference_of(
    kafkas: tuple[DescribedGroup, OffsetFetchResponse], mirrors: tuple[DescribedGroup, OffsetFetchResponse]
) -> str:
    """What is not the same, in words; "": nothing. All that DescribeGroups and OffsetFetch show, each byte of it, but
    not the order in which it comes."""
    described, fetched = kafkas
    described_here, fetched_here = mirrors
    for what, theirs, ours in (
        ("error code of DescribeGroups", int(described.error_code), int(described_here.error_code)),
        ("state", described.group_state, described_here.group_state),
        ("protocol type", described.protocol_type, described_here.protocol_type),
        ("protocol", described.protocol_data, described_here.protocol_data),
        ("error code of OffsetFetch", int(fetched.error_code), int(fetched_here.error_code)),
    ):
        if theirs != ours:
            return f"the {what} is {theirs!r} there and {ours!r} here"
    return _of_members(described.members, described_here.members) or difference_of_offsets(fetched, fetched_here)


def _of_members(theirs: tuple[DescribedMember, ...], ours: tuple[DescribedMember, ...]) -> str:
    there, here = ({each.member_id: each for each in members} for members in (theirs, ours))
    for member_id in sorted({*there, *here}):
        if there.get(member_id) != here.get(member_id):
            return f"member {member_id[:100]!r} is {_where(member_id in there, member_id in here)}"
    return ""


def difference_of_offsets(theirs: OffsetFetchResponse, ours: OffsetFetchResponse) -> str:
    """What is not the same, in words; "": nothing."""
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
