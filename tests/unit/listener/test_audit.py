"""What the log says of refusals, and that nobody can fill it."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.listener.test_access import DESCRIBE, FOUND, ME, ONE, READ, TOPIC, ask

from muster_coordinator.listener.audit import LONGEST_NAME, AuditLog
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.security.acls import Operation, ResourceType
from muster_coordinator.security.identity import Identity

Line = MutableMapping[str, Any]


class Clock:
    now_ms = 5000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def audit(clock: Clock) -> AuditLog:
    return AuditLog(20, clock)


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    with capture_logs() as logs:
        yield logs


def refuse(audit: AuditLog, host: str, name: str = "g") -> None:
    who = Identity("User:me", host, "PLAIN")
    audit.request_refused(who, m.HeartbeatRequest("g", 1, "m", None), Operation.READ, ResourceType.GROUP, name)


def test_refused_request_is_one_line_that_says_who_from_where_and_what(audit: AuditLog, lines: list[Line]) -> None:
    commit = m.OffsetCommitRequest("mine", -1, "", None, -1, (("no", ONE), ("yes", ONE)), 9)
    rights = ((ResourceType.GROUP, "mine", READ), (TOPIC, "yes", READ))
    ask(commit, *rights, coordinator=m.OffsetCommitResponse((("yes", ((0, 0),)),)), audit=audit)
    assert lines == [
        {
            "event": "request_refused",
            "log_level": "warning",
            "client": "10.0.0.1",
            "principal": ME,
            "request": "OffsetCommitRequest",
            "operation": "READ",
            "resource": "TOPIC",
            "name": "no",
        }
    ]
    assert audit.refused == {"TOPIC": 1}


def test_what_is_left_out_of_a_list_is_no_refusal(audit: AuditLog, lines: list[Line]) -> None:
    groups = m.ListGroupsResponse(0, (m.ListedGroup("no", "consumer", "Stable", "classic"),))
    assert ask(m.ListGroupsRequest(), coordinator=groups, audit=audit).got[0].groups == ()
    every = w.OffsetFetchRequests((m.OffsetFetchRequest("g", None, -1, None, False),), False)
    found = w.OffsetFetchResponses((m.OffsetFetchResponse("g", 0, (("no", FOUND),)),))
    right = (ResourceType.GROUP, "g", DESCRIBE)
    assert ask(every, right, coordinator=found, audit=audit).got[0].groups[0].topics == ()
    assert lines == []


def test_flood_of_one_address_leaves_room_for_others_and_its_size_is_told(
    audit: AuditLog, clock: Clock, lines: list[Line]
) -> None:
    for _ in range(10_000):
        refuse(audit, "10.0.0.66")
    refuse(audit, "10.0.0.7")
    assert [each["client"] for each in lines] == ["10.0.0.66"] * 5 + ["10.0.0.7"]
    assert audit.refused["GROUP"] == 10_001
    clock.now_ms += 1000
    audit.look()
    assert (lines[-1]["event"], lines[-1]["number"]) == ("refusals_not_logged", 9_995)
    refuse(audit, "10.0.0.66")
    assert len(lines) == 8, "another second"


def test_flood_of_many_addresses_is_bounded(audit: AuditLog, lines: list[Line]) -> None:
    for number in range(1000):
        refuse(audit, f"10.0.{number // 250}.{number % 250}")
    assert len(lines) == 20


def test_names_that_clients_choose_are_cut(audit: AuditLog, lines: list[Line]) -> None:
    refuse(audit, "10.0.0.1", "x" * 30_000)
    assert lines[0]["name"] == "x" * LONGEST_NAME


def test_none_is_none(clock: Clock, lines: list[Line]) -> None:
    silent = AuditLog(0, clock)
    refuse(silent, "10.0.0.1")
    clock.now_ms += 1000
    silent.look()
    assert lines == []
    assert silent.refused == {"GROUP": 1}
