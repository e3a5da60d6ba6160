"""After a load the sessions of all members start, and oversized groups rebalance, in slices: a partition may hold very
many groups, and the others are not to wait for them."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.effects import START_SESSIONS_TIMER


def loaded_in_slices(monkeypatch: pytest.MonkeyPatch, **settings: int) -> Harness:
    """A reloaded partition of five stable groups g-0, g-1, ... of two members each, after the first of the slices in
    which their sessions start; `settings`: those of the new leader."""
    monkeypatch.setattr("muster_coordinator.groups.sessions.START_SLICE", 3)  # one group with its members
    h = Harness()
    for number in range(5):
        h.stable_group(f"g-{number}", members=2, session_timeout_ms=60_000)
    h.check = False  # until all sessions have started
    h.config = GroupConfig(**settings)
    h.reload()
    return h


def finish(h: Harness) -> None:
    """All slices; the invariants hold from then on."""
    while h.timers.pop(START_SESSIONS_TIMER, None) is not None:
        h.fire(START_SESSIONS_TIMER)
    h.check = True
    h.advance(1)


def sessions(h: Harness) -> set[str]:
    """Groups with running sessions."""
    return {group_id for kind, group_id, _ in h.timers if kind == "session"}


def test_sessions_of_many_groups_start_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    h = loaded_in_slices(monkeypatch)
    started = [sessions(h)]
    while START_SESSIONS_TIMER in h.timers:
        assert h.timers.pop(START_SESSIONS_TIMER) == h.now_ms, "the next slice follows at once"
        h.fire(START_SESSIONS_TIMER)
        started.append(sessions(h))
    assert [len(groups) for groups in started] == [1, 2, 3, 4, 5, 5]
    finish(h)
    h.advance(60_000)
    assert {h.state(f"g-{number}") for number in range(5)} == {"Empty"}


def test_group_is_served_before_the_slice_in_which_its_sessions_start(monkeypatch: pytest.MonkeyPatch) -> None:
    h = loaded_in_slices(monkeypatch)
    stays, leaves = h.coordinator.group("g-4").members
    assert h.heartbeat("g-4", 1, stays) == 0
    h.leave("g-4", leaves)
    rejoined = h.join("g-4", stays)
    new = h.join("g-3", h.join("g-3").response.member_id)
    h.leave("g-2", *h.coordinator.group("g-2").members)
    assert h.delete("g-2") == 0
    finish(h)
    assert (rejoined.code, rejoined.response.generation_id) == (0, 2)
    assert new.parked
    assert h.timers["session", "g-3", new.request.member_id] == h.now_ms - 1 + 300_000, "that of a new member goes on"
    assert "g-2" not in sessions(h)


def test_oversized_group_of_a_later_slice_rebalances_too(monkeypatch: pytest.MonkeyPatch) -> None:
    h = loaded_in_slices(monkeypatch, max_size=1)
    assert [h.state(f"g-{number}") for number in range(5)] == ["PreparingRebalance", *["Stable"] * 4]
    finish(h)
    assert [h.state(f"g-{number}") for number in range(5)] == ["PreparingRebalance"] * 5


def test_sessions_do_not_start_after_an_unload(monkeypatch: pytest.MonkeyPatch) -> None:
    h = loaded_in_slices(monkeypatch)
    assert h.coordinator.on_unloaded() == ()
    assert h.coordinator.on_timer(START_SESSIONS_TIMER, h.now_ms).timers == []
