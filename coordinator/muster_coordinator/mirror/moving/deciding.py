"""The end of a group's move: what Kafka says of it is compared with what the mirror has, and its route is appended, in
one operation of the shard. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.move import Move


@dataclass(frozen=True)
class DecideRequest:
    """`there`: Kafka's answers, asked for in `COMPARING`."""

    group_id: str
    move: Move
    there: GroupAtKafka


class DecideResponse(msgspec.Struct, frozen=True, gc=False):
    """`reason`: why nothing was appended; "": the route was, and is committed."""

    reason: str


class BeginSessionsRequest(msgspec.Struct, frozen=True, gc=False):
    """The sessions of a group's members begin, if Muster serves it. What was appended before is committed with the
    answer."""

    group_id: str


class BeginSessionsResponse(msgspec.Struct, frozen=True, gc=False):
    at_muster: bool
