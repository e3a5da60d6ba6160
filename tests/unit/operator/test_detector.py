"""The failure detector's table."""

from __future__ import annotations

import itertools

import pytest

from muster_operator.plan.observation import Connection
from muster_operator.pods.detector import DETAILS, TRANSITIONS, Event


def test_every_pair_of_state_and_event_has_its_row() -> None:
    assert set(TRANSITIONS) == set(itertools.product(Connection, Event))


@pytest.mark.parametrize("event", [Event.REFUSED, Event.UNREACHABLE, Event.SILENT, Event.STRANGER])
def test_stream_that_ended_and_cannot_be_opened_again_means_down(event: Event) -> None:
    assert TRANSITIONS[TRANSITIONS[Connection.UP, Event.ENDED], event] is Connection.DOWN


def test_stream_that_ended_alone_is_no_death() -> None:
    assert TRANSITIONS[Connection.UP, Event.ENDED] is Connection.UNSURE


def test_silence_of_an_open_stream_means_down() -> None:
    assert TRANSITIONS[Connection.UP, Event.SILENT] is Connection.DOWN


@pytest.mark.parametrize("before", list(Connection))
def test_status_brings_a_pod_up_from_everywhere(before: Connection) -> None:
    assert TRANSITIONS[before, Event.STATUS] is Connection.UP


def test_every_way_of_being_down_has_words() -> None:
    assert all(DETAILS[event] for event in Event if event is not Event.STATUS)
