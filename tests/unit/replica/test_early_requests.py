"""Requests that came while nobody led: for how long they wait, and what they are told."""

from __future__ import annotations

import pytest
from tests.unit.shard.fake_world import Asked, Read, World, Write

from muster_coordinator.errors import ErrorCode
from muster_coordinator.replica.early_requests import PATIENCE_MS, EarlyRequests
from muster_coordinator.requests.groups import OffsetFetchRequest

FETCH = OffsetFetchRequest("g", None, -1, None, False)


def waiting(*requests: object, now_ms: int = 1_000) -> tuple[EarlyRequests, list[Asked]]:
    early, answers = EarlyRequests(), [Asked() for _ in requests]
    for request, answer in zip(requests, answers, strict=True):
        early.add(request, answer, now_ms)
    return early, answers


def test_while_the_election_is_under_way_they_wait_and_then_for_a_load_no_longer() -> None:
    early, (asked,) = waiting(Read())
    early.settle(None, electing=True, led_elsewhere=True, now_ms=1_000 + PATIENCE_MS - 1)
    assert (asked.got, bool(early)) == ([], True)
    early.settle(None, electing=True, led_elsewhere=False, now_ms=1_000 + PATIENCE_MS)
    assert (asked.got, bool(early)) == ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], False)
    early.add(Read(), again := Asked(), 5_000)
    early.settle(None, electing=True, led_elsewhere=False, now_ms=5_000 + PATIENCE_MS - 1)
    assert again.got == []


def test_they_are_refused_when_another_replica_leads() -> None:
    early, answers = waiting(Read(), Write(("a",)))
    early.settle(None, electing=False, led_elsewhere=True, now_ms=1_001)
    assert [asked.got for asked in answers] == [[ErrorCode.NOT_COORDINATOR]] * 2


def test_while_nobody_leads_a_fetch_waits_for_a_leader_and_then_no_longer() -> None:
    early, (asked, written) = waiting(FETCH, Write(("a",)))
    early.settle(None, electing=False, led_elsewhere=False, now_ms=1_000 + PATIENCE_MS - 1)
    assert (asked.got, written.got, bool(early)) == ([], [ErrorCode.NOT_COORDINATOR], True)
    early.settle(None, electing=False, led_elsewhere=False, now_ms=1_000 + PATIENCE_MS)
    assert (asked.got, bool(early)) == ([ErrorCode.NOT_COORDINATOR], False)


@pytest.mark.interpreted  # a double of the log
def test_a_shard_takes_them_in_their_order_or_says_that_it_loads() -> None:
    world = World()
    world.shard.start_loading()
    early, (asked,) = waiting(Read())
    early.settle(world.shard, electing=True, led_elsewhere=False, now_ms=1_001)
    assert asked.got == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world = World()
    world.activate()
    early, (written, read) = waiting(Write(("a",)), Read())
    early.settle(world.shard, electing=False, led_elsewhere=False, now_ms=1_001)
    world.turn()
    world.commit()
    assert (written.got, read.got) == (["written"], [("read", ("a",))])
