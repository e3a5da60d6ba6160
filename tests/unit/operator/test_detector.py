"""The failure detector's table."""

from __future__ import annotations

import itertools

import pytest

from muster_operator.plan.observation import Connection
from muster_operator.pods.detector import DETAILS, TRANSITIONS, Event


def test_every_pair_of_state_and_event_has_its_row() -> None:
    assert set(TRANSITIONS) == set(itertools.product(Connection, Event))


@pytest.mark.parametrize("event", [Event.REFUSED, Event.STRANGER])
@pytest.mark.parametrize("first", [Event.ENDED, Event.SILENT])
def test_stream_that_ended_and_is_refused_means_down(first: Event, event: Event) -> None:
    assert TRANSITIONS[TRANSITIONS[Connection.UP, first], event] is Connection.DOWN


@pytest.mark.parametrize("event", [Event.UNREACHABLE, Event.SILENT, Event.ENDED])
def test_pod_that_cannot_be_reached_is_only_suspected_however_long(event: Event) -> None:
    suspected = TRANSITIONS[TRANSITIONS[Connection.UP, Event.ENDED], event]
    assert suspected is Connection.SUSPECT
    assert TRANSITIONS[suspected, event] is Connection.SUSPECT


def test_stream_that_ended_alone_is_no_death() -> None:
    assert TRANSITIONS[Connection.UP, Event.ENDED] is Connection.UNSURE


def test_silence_of_an_open_stream_is_a_suspicion() -> None:
    assert TRANSITIONS[Connection.UP, Event.SILENT] is Connection.SUSPECT


@pytest.mark.parametrize("before", list(Connection))
def test_status_brings_a_pod_up_from_everywhere(before: Connection) -> None:
    assert TRANSITIONS[before, Event.STATUS] is Connection.UP


def test_every_way_of_being_down_has_words() -> None:
    assert all(DETAILS[event] for event in Event if event is not Event.STATUS)
