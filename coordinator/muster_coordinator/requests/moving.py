"""The question of a gateway to the leader of a partition, and its answer: who serves the groups that move."""

from __future__ import annotations

import msgspec


class Fence(msgspec.Struct, frozen=True):
    """Requests of the group wait in the gateway. `number`: of the leader's fences."""

    group_id: str
    number: int


class Route(msgspec.Struct, frozen=True):
    """The side that serves a group. `epoch` grows by one with each change."""

    group_id: str
    epoch: int
    at_muster: bool


class LeaseRequest(msgspec.Struct, frozen=True):
    """`gateway`: another name after each start. `number` grows with each request of the gateway. `drained`: fences of
    the leader with that epoch behind which the gateway has nothing outstanding at Kafka."""

    gateway: str
    number: int
    leader_epoch: int
    drained: frozenset[int]


class LeaseAnswer(msgspec.Struct, frozen=True):
    """An answer that is sent when all that the leader has appended so far is committed: a leader of the past cannot
    send it.

    `number`: of the request. `lease_ms` counts from when the gateway sent that. `routes`: of all groups of the
    partition that have one.
    """

    number: int
    leader_epoch: int
    lease_ms: int
    routes: tuple[Route, ...]
    fences: tuple[Fence, ...]
