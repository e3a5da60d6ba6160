"""Attempts: one election at a time, failures held back with jitter, a restart starts anew."""

from __future__ import annotations

import pytest

from muster_coordinator.calls import CallResult, CallStatus
from muster_operator.api.conditions import Reason
from muster_operator.attempts import FIRST_DELAY_S, MAX_DELAY_S, SOON_S, Attempts


def failed(attempts: Attempts, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        attempts.start("p", "c-0", 1, now)
        attempts.answered("p", 1, now, CallResult(0, CallStatus.NO_MAJORITY, message="one of three answered"))


def test_election_is_in_flight_until_it_is_answered() -> None:
    attempts = Attempts(lambda: 1.0)
    attempts.start("p", "c-0", 1, 0.0)
    assert attempts.view(0.0)["p"].in_flight
    attempts.answered("p", 1, 0.0, CallResult(0, CallStatus.ACCEPTED))
    assert attempts.view(0.0) == {}


def test_first_failure_is_tried_again_at_once() -> None:
    attempts = Attempts(lambda: 1.0)
    failed(attempts, 1)
    assert attempts.view(0.0) == {}
    assert attempts.next_due(0.0) is None


def test_second_failure_is_held_back_with_its_reason() -> None:
    attempts = Attempts(lambda: 1.0)
    failed(attempts, 2)
    view = attempts.view(0.0)["p"]
    assert (view.held_back, view.reason, view.message) == (
        True,
        Reason.NO_MAJORITY,
        "pod c-0 in epoch 1: noMajority one of three answered",
    )
    assert attempts.next_due(0.0) == pytest.approx(FIRST_DELAY_S)
    assert attempts.view(FIRST_DELAY_S) == {}


def test_call_without_an_answer_is_held_back_with_its_message_and_refuses_nothing() -> None:
    attempts = Attempts(lambda: 1.0)
    for _ in range(2):
        attempts.start("p", "c-0", 1, 0.0)
        attempts.unanswered("p", 1, 0.0, "no answer in time")
    view = attempts.view(0.0)["p"]
    assert (view.reason, view.message, view.refused) == (Reason.ELECTING, "no answer in time", frozenset())


def test_delay_grows_to_its_bound_and_jitter_halves_it_at_most() -> None:
    late, early = Attempts(lambda: 1.0), Attempts(lambda: 0.0)
    failed(late, 50)
    failed(early, 50)
    assert late.next_due(0.0) == pytest.approx(MAX_DELAY_S)
    assert early.next_due(0.0) == pytest.approx(MAX_DELAY_S / 2)


def test_active_leader_ends_the_series_and_gives_its_duration() -> None:
    attempts = Attempts(lambda: 1.0)
    attempts.start("p", "c-0", 1, 1.0)
    assert attempts.settle("p", 1.5) is None  # still in flight: what is active is an older election
    attempts.answered("p", 1, 2.0, CallResult(0, CallStatus.ACCEPTED))
    assert attempts.settle("p", 3.0) == 2.0
    assert attempts.settle("p", 3.0) is None


def test_restart_of_the_pod_forgets_its_failures_only() -> None:
    attempts = Attempts(lambda: 1.0)
    failed(attempts, 3)
    attempts.forget(["c-1"])
    assert "p" in attempts.view(0.0)
    attempts.forget(["c-0"])
    assert attempts.view(0.0) == {}


def test_late_answer_to_an_election_that_was_given_up_says_nothing() -> None:
    attempts = Attempts(lambda: 1.0)
    attempts.start("p", "c-0", 1, 0.0)
    attempts.start("p", "c-1", 2, 0.0)
    attempts.answered("p", 1, 0.0, CallResult(0, CallStatus.NO_MAJORITY))
    assert attempts.view(0.0)["p"].in_flight
    assert attempts.view(0.0)["p"].pod == "c-1"


def test_pod_that_refused_is_remembered_for_a_while_even_when_another_one_leads() -> None:
    attempts = Attempts(lambda: 1.0)
    attempts.start("p", "c-0", 1, 0.0)
    attempts.answered("p", 1, 0.0, CallResult(0, CallStatus.CANNOT_WRITE))
    attempts.settle("p", 0.0)
    assert attempts.view(0.0)["p"].refused == {"c-0"}
    assert attempts.next_due(0.0) == SOON_S
    assert attempts.view(SOON_S) == {}


def test_better_log_is_remembered_until_the_next_election() -> None:
    attempts = Attempts(lambda: 1.0)
    attempts.start("p", "c-0", 1, 0.0)
    attempts.answered("p", 1, 0.0, CallResult(0, CallStatus.BETTER_LOG, better_log_id="log-2"))
    assert attempts.view(0.0)["p"].better == "log-2"
    attempts.start("p", "c-2", 2, 0.0)
    assert attempts.view(0.0)["p"].better == ""


def test_calls_one_after_the_other_are_under_way_for_a_while_and_not_without_end() -> None:
    attempts = Attempts(lambda: 1.0)
    attempts.start("p", "c-0", 1, 5.0)
    assert attempts.are_under_way(5.0 + SOON_S / 2)
    attempts.start("q", "c-0", 1, 5.0 + SOON_S / 2)
    attempts.answered("p", 1, 5.0 + SOON_S / 2, CallResult(0, CallStatus.ACCEPTED))
    assert attempts.next_due(5.0 + SOON_S / 2) == pytest.approx(SOON_S / 2)
    assert not attempts.are_under_way(5.0 + SOON_S)
    attempts.answered("q", 1, 6.0, CallResult(0, CallStatus.ACCEPTED))
    attempts.start("r", "c-0", 1, 7.0)
    assert attempts.are_under_way(7.0), "there was a break"
    attempts.answered("r", 1, 7.0, CallResult(0, CallStatus.ACCEPTED))
    assert not attempts.are_under_way(7.0)
