"""Requests of a pod that tells none of them go the way that they went before there were traces."""

from __future__ import annotations

from typing import Any

import pytest

from muster_coordinator.process.tracing import watched
from muster_coordinator.requests.groups import HeartbeatRequest, OffsetCommitRequest


def heartbeat(_request: Any, _exchange: Any) -> None:
    raise AssertionError


def commit(_request: Any, _exchange: Any) -> None:
    raise AssertionError


@pytest.mark.parametrize("spans", [None, object()], ids=["without a collector", "with a collector"])
def test_handlers_are_the_very_same_without_a_time_that_is_slow(spans: Any) -> None:
    handlers: dict[type, Any] = {HeartbeatRequest: heartbeat, OffsetCommitRequest: commit}
    unused: Any = None
    assert watched(handlers, 0, unused, unused, unused, spans) is handlers
    assert handlers == {HeartbeatRequest: heartbeat, OffsetCommitRequest: commit}
    others = watched(handlers, 500, unused, unused, unused, spans)
    assert others[HeartbeatRequest] is not heartbeat
    assert others[OffsetCommitRequest] is not commit
