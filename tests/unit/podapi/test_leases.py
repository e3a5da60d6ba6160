"""Leases on the wire of the pod API say what they say in memory."""

from __future__ import annotations

import msgspec
import pytest

from muster_coordinator.podapi.leases import (
    FenceEntry,
    LeaseAsk,
    LeasesAnswer,
    LeasesRequest,
    PartitionLease,
    RouteEntry,
)


def test_answer_comes_through() -> None:
    lease = PartitionLease(9, 7, 3, 3000, (RouteEntry("orders", 2, True), RouteEntry("a", 1, False)), ())
    answer = LeasesAnswer(50, 3000, (lease, PartitionLease(10, 8, 3, 3000, (), (FenceEntry("b", 4),))))
    sent = msgspec.json.encode(answer)
    assert msgspec.json.decode(sent, type=LeasesAnswer) == answer
    assert b'"atMuster":true' in sent
    assert b'"leaderEpoch":3' in sent


def test_request_comes_through() -> None:
    request = LeasesRequest("gateway", ("orders",), (LeaseAsk(9, 5, -1, frozenset({1, 2})),))
    assert msgspec.json.decode(msgspec.json.encode(request), type=LeasesRequest) == request


@pytest.mark.parametrize(
    "body",
    [
        b'{"gateway":"","movable":[],"asks":[]}',
        b'{"gateway":"g","movable":[],"asks":[{"partition":-1,"number":1,"leaderEpoch":0}]}',
    ],
)
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=LeasesRequest)
