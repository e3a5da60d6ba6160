"""What an address may try before its clients have said who they are."""

from __future__ import annotations

from muster_coordinator.listener.admission import Admission

LOGIN_MS = 10_000


def test_logins_of_one_address_are_bounded_and_others_are_not_touched() -> None:
    admission = Admission(2, 100, LOGIN_MS)
    assert [admission.enter("a") for _ in range(3)] == [True, True, False]
    assert admission.enter("b")
    admission.leave("a")
    assert [admission.enter("a"), admission.enter("a")] == [True, False]


def test_each_failure_waits_twice_as_long_up_to_a_limit_and_is_forgotten() -> None:
    admission = Admission(1, 100, LOGIN_MS)
    assert [admission.failed("a", now) for now in range(4)] == [100, 200, 400, 800]
    assert admission.failed("b", 4) == 100
    assert [admission.failed("a", 5) for _ in range(100)][-1] == LOGIN_MS // 2
    assert admission.failed("a", 5 + 6 * LOGIN_MS) == LOGIN_MS // 2
    assert admission.failed("a", 6 + 12 * LOGIN_MS) == 100


def test_no_delay_stays_none() -> None:
    admission = Admission(1, 0, LOGIN_MS)
    assert [admission.failed("a", 0) for _ in range(20)] == [0] * 20


def test_memory_of_failures_is_bounded() -> None:
    admission = Admission(1, 100, LOGIN_MS)
    for number in range(10_001):
        admission.failed(str(number), 0)
    assert admission.failed("1", 0) == 200, "still remembered"
    assert admission.failed("0", 0) == 100, "forgotten for the newest"
