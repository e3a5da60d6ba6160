"""POST /v1/leases: the leases under which a gateway sends requests of movable groups to Kafka (docs/adr/0048).

A gateway asks every pod for all partitions. A pod answers for those that it leads, when all that it had appended to
them is committed; one whose commit takes longer is left out, as is one that it does not lead.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_coordinator.podapi.fields import Answer, Partition, Request

ASKS_MAX = 100_000
"""Partitions of one call."""


class LeaseAsk(Request, frozen=True):
    """`requests.moving.LeaseRequest` of one partition."""

    partition: Partition
    number: Annotated[int, msgspec.Meta(ge=0)]
    leader_epoch: Annotated[int, msgspec.Meta(ge=-1)]
    drained: frozenset[int] = frozenset()


class LeasesRequest(Request, frozen=True):
    """`gateway`: another name after each start. `movable`: the beginnings of the ids of groups that it sends to Kafka
    only under a lease; "" is that of all. `asks` may be empty: what is wanted then is the number of partitions."""

    gateway: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    movable: tuple[str, ...]
    asks: Annotated[tuple[LeaseAsk, ...], msgspec.Meta(max_length=ASKS_MAX)]


class RouteEntry(Answer, frozen=True):
    group_id: str
    epoch: int
    at_muster: bool


class FenceEntry(Answer, frozen=True):
    group_id: str
    number: int


class PartitionLease(Answer, frozen=True):
    """`requests.moving.LeaseAnswer` of one partition."""

    partition: int
    number: int
    leader_epoch: int
    lease_ms: int
    routes: tuple[RouteEntry, ...]
    fences: tuple[FenceEntry, ...]


class LeasesAnswer(Answer, frozen=True):
    """`partitions`: how many Muster's offsets topic has, 0: the pod does not know yet. A group's partition is the one
    that Kafka gives it. `lease_ms`: how long a lease is. `movable`: the beginnings of the ids of groups that this pod
    lets move, as in the request. Empty in answers of pods that do not say so yet."""

    partitions: int
    lease_ms: int
    answers: tuple[PartitionLease, ...]
    movable: tuple[str, ...] = ()
