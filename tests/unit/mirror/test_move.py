"""Steps of a group's move that its simulation does not take."""

from __future__ import annotations

import pytest

from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.requests.moving import LeaseRequest

LEASE_MS = 1_000
SETTLED_MS = 1_100
END = 7


def _started() -> tuple[Move, Leases]:
    return Move("orders", 1, wait_ms=5_000, fence_ms=3_000, now_ms=0), Leases(1, LEASE_MS, 0)


def _comparing() -> Move:
    move, leases = _started()
    move.look(leases, END, True, False, SETTLED_MS)
    assert move.look(leases, END, True, False, SETTLED_MS) is Task.READ_END
    move.end_read(END)
    assert move.look(leases, END, True, False, SETTLED_MS) is Task.COMPARE
    return move


@pytest.mark.parametrize(("complete", "now_ms"), [(False, SETTLED_MS), (True, SETTLED_MS - 1)])
def test_nothing_is_fenced_before_the_mirror_is_there_and_old_leases_are_gone(complete: bool, now_ms: int) -> None:
    move, leases = _started()
    move.look(leases, END, complete, False, now_ms)
    assert (move.step, move.fence) == (Step.WAITING, None)


@pytest.mark.parametrize(("position", "pending"), [(END - 1, False), (END, True)])
def test_barrier_holds_for_the_mirror_and_for_a_transaction(position: int, pending: bool) -> None:
    move, leases = _started()
    move.look(leases, END, True, False, SETTLED_MS)
    move.look(leases, END, True, False, SETTLED_MS)
    move.end_read(END)
    assert move.look(leases, position, True, pending, SETTLED_MS) is None
    assert move.step is Step.PASSING


def test_difference_gives_the_move_up() -> None:
    move = _comparing()
    assert move.compared("offset of t-0") is None
    assert (move.step, move.fence) == (Step.GIVEN_UP, None)
    assert "offset of t-0" in move.reason


def test_fence_that_stands_too_long_falls() -> None:
    move, leases = _started()
    move.look(leases, END, True, False, SETTLED_MS)
    leases.asked(LeaseRequest("g", 1, 1, frozenset()), SETTLED_MS + 3_000 - 1)
    move.look(leases, END, True, False, SETTLED_MS + 3_000 - 1)
    assert move.step is Step.DRAINING
    move.look(leases, END, True, False, SETTLED_MS + 3_000)
    assert (move.step, move.fence) == (Step.GIVEN_UP, None)


def test_nothing_gives_up_while_the_log_decides() -> None:
    move = _comparing()
    assert move.compared("") is Task.DECIDE
    _, leases = _started()
    move.look(leases, END, True, False, 1_000_000)
    assert not move.give_up("a person asks")
    assert move.fence is not None
    move.decided()
    assert (move.step, move.fence) == (Step.MOVED, None)


def test_gateway_of_another_leader_has_drained_nothing() -> None:
    leases = Leases(2, LEASE_MS, 0)
    leases.asked(LeaseRequest("g", 1, 1, frozenset({1})), 0)
    assert not leases.are_drained(1, 10)
    leases.asked(LeaseRequest("g", 2, 2, frozenset({1})), 20)
    assert leases.are_drained(1, 30)


def test_lease_counts_for_a_tenth_longer_than_the_gateway_has_it() -> None:
    """Clocks do not go alike."""
    leases = Leases(1, LEASE_MS, 0)
    leases.asked(LeaseRequest("g", 1, 1, frozenset()), 0)
    assert not leases.are_drained(1, LEASE_MS + LEASE_MS // 10 - 1)
    assert leases.are_drained(1, LEASE_MS + LEASE_MS // 10)


def test_word_about_another_fence_says_nothing_about_this_one() -> None:
    leases = Leases(1, LEASE_MS, 0)
    leases.asked(LeaseRequest("g", 1, 1, frozenset({1})), 0)
    assert not leases.are_drained(2, 10)


def test_request_that_was_overtaken_does_not_take_back_what_a_later_one_says() -> None:
    leases = Leases(1, LEASE_MS, 0)
    leases.asked(LeaseRequest("g", 2, 1, frozenset()), 0)
    leases.asked(LeaseRequest("g", 1, 1, frozenset({1})), 10)
    assert not leases.are_drained(1, 20)
