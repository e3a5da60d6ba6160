"""POST /v1/resets/plan, POST /v1/resets: offsets of a group are set, at the leader of its partition.

A plan writes no offset. Who wants it carried out keeps it first, and sends it then: sent again it changes nothing, as a
partition has to have the offset of before or the one of after. Members stand in the way, unless they are to be parked:
then a plan that has no other obstacle puts them out, and nobody gets in for `PARKED_MS`, or until it was carried out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from muster_coordinator.podapi.fields import Answer, Request

PLACES_MAX = 1_000
"""Partitions of one reset: its plan is kept in a status."""
PARKED_MS = 10_000
"""Longest time that members are kept out: the plan is written down and carried out meanwhile."""

_Group = Annotated[str, msgspec.Meta(min_length=1, max_length=32_767)]
_Offset = Annotated[int, msgspec.Meta(ge=0)]


class WantedOffset(Request, frozen=True):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    offset: _Offset


class PlanRequest(Request, frozen=True):
    """`number`: an offset, how far to shift, or milliseconds since 1970. `topics`: all of their partitions; none: all
    that the group has an offset for. `park`: whether members are put out. `offsets`: for `to` "offsets", of the
    partitions that are reset."""

    group: _Group
    to: Literal["earliest", "latest", "offset", "shiftBy", "datetime", "offsets"]
    number: int = 0
    topics: tuple[str, ...] = ()
    park: bool = False
    offsets: Annotated[tuple[WantedOffset, ...], msgspec.Meta(max_length=PLACES_MAX)] = ()


class PlannedOffset(Request, frozen=True):
    """`before`: what is committed; -1 if nothing is."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    before: Annotated[int, msgspec.Meta(ge=-1)]
    after: _Offset


class PlanAnswer(Answer, frozen=True):
    """`obstacles`: what stands in the way; if there is anything, there is no plan."""

    obstacles: tuple[str, ...]
    offsets: tuple[PlannedOffset, ...] = ()


class ResetRequest(Request, frozen=True):
    """A plan that is to be carried out. `park`: as in the plan; members that are back are put out again."""

    group: _Group
    offsets: Annotated[tuple[PlannedOffset, ...], msgspec.Meta(min_length=1, max_length=PLACES_MAX)]
    park: bool = False


class ResetAnswer(Answer, frozen=True):
    """`Written`: the group has the offsets, from now on or from before. `Changed`: somebody has committed since the
    plan, and nothing was written. `Refused`: nothing was, `why` says what has to be done first."""

    outcome: Literal["Written", "Changed", "Refused"]
    why: str = ""
