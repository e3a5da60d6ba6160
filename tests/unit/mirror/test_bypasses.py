"""Groups of Muster's that clients use at the Kafka cluster itself."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from tests.unit.mirror.harness import MemoryWriter, MirrorShard, Upstream
from tests.unit.mirror.test_coordinator import a_commit

from muster_coordinator.mirror.bypasses import GROUPS_MAX, Bypass
from muster_coordinator.pod.mirroring.bypass_log import LINES, WAITING_MAX, BypassLog

AT_KAFKA = "client@127.0.0.1"


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def mirror(upstream: Upstream) -> MirrorShard:
    """Up to date; groups m-... are Muster's."""
    mirror = MirrorShard(MemoryWriter(), serves=lambda group_id: group_id.startswith("m-"))
    mirror.follow_to_end(upstream)
    return mirror


def news(mirror: MirrorShard, upstream: Upstream) -> list[Bypass]:
    mirror.follow_to_end(upstream)
    return list(mirror.machine.bypasses.news())


def test_group_whose_members_are_at_kafka_is_told_once_with_its_clients(
    mirror: MirrorShard, upstream: Upstream
) -> None:
    upstream.generation("m-1", 1, "a", "b")
    upstream.generation("k-1", 1, "a")
    upstream.commit("m-1", 5)
    assert news(mirror, upstream) == [Bypass("m-1", AT_KAFKA, False)]
    upstream.generation("m-1", 2, "a")
    upstream.commit("m-1", 6)
    assert news(mirror, upstream) == []
    assert mirror.machine.bypasses.with_members == {"m-1": Bypass("m-1", AT_KAFKA, False)}


def test_group_that_is_used_here_as_well_is_told_again(mirror: MirrorShard, upstream: Upstream) -> None:
    upstream.generation("m-1", 1, "a")
    assert news(mirror, upstream) == [Bypass("m-1", AT_KAFKA, False)]
    mirror.ask(a_commit("m-1", 3))
    assert news(mirror, upstream) == []
    upstream.commit("m-1", 5)
    assert news(mirror, upstream) == [Bypass("m-1", AT_KAFKA, True)]
    upstream.commit("m-1", 6)
    assert news(mirror, upstream) == []


def test_group_whose_members_have_left_is_told_when_they_come_back(mirror: MirrorShard, upstream: Upstream) -> None:
    upstream.generation("m-1", 1, "a")
    assert len(news(mirror, upstream)) == 1
    upstream.generation("m-1", 2)
    assert news(mirror, upstream) == []
    assert mirror.machine.bypasses.with_members == {}
    upstream.remove_group("m-1")
    upstream.remove("m-1")
    assert news(mirror, upstream) == []
    upstream.generation("m-1", 3, "a")
    assert len(news(mirror, upstream)) == 1


def test_commit_without_members_is_told_and_no_use_that_lasts(mirror: MirrorShard, upstream: Upstream) -> None:
    upstream.commit("m-1", 5)
    upstream.commit("m-1", 6)
    assert news(mirror, upstream) == [Bypass("m-1", "", False)]
    assert mirror.machine.bypasses.with_members == {}
    upstream.generation("m-1", 1, "a")
    assert news(mirror, upstream) == [Bypass("m-1", AT_KAFKA, False)]


def test_what_a_group_left_behind_at_kafka_before_it_was_musters_is_not_told(upstream: Upstream) -> None:
    upstream.generation("m-1", 1, "a")
    upstream.commit("m-1", 5)
    upstream.generation("m-1", 2)
    upstream.commit("m-3", 5)
    upstream.generation("m-2", 1, "a")
    mirror = MirrorShard(MemoryWriter(), serves=lambda group_id: group_id.startswith("m-"))
    assert news(mirror, upstream) == [Bypass("m-2", AT_KAFKA, False)]


def test_groups_of_any_number_and_length_take_bounded_memory(mirror: MirrorShard, upstream: Upstream) -> None:
    for number in range(GROUPS_MAX + 100):
        upstream.generation(f"m-{number}" + "x" * 30_000, 1, "a")
    found = news(mirror, upstream)
    assert len(found) == len(mirror.machine.bypasses.with_members) == GROUPS_MAX
    assert max(len(each.group_id) for each in found) == 256


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        raise AssertionError

    def monotonic_s(self) -> float:
        raise AssertionError


def test_lines_name_group_and_clients_and_are_few_at_a_time() -> None:
    clock = Clock()
    log = BypassLog(clock, 100)
    with capture_logs() as logs:
        log.add(3, [Bypass("m-1", AT_KAFKA, True)])
        log.look()
        assert logs == [
            {
                "event": "group_served_twice",
                "log_level": "warning",
                "group": "m-1",
                "clients": AT_KAFKA,
                "partition": 3,
            }
        ]
        log.add(3, [Bypass(f"m-{number}", "", False) for number in range(WAITING_MAX + 7)])
        for _ in range(1000):
            log.look()
        assert len(logs) == 1
        for _ in range(WAITING_MAX):
            clock.now_ms += 100
            before = len(logs)
            log.look()
            assert len(logs) - before <= LINES + 1
    assert [each["event"] for each in logs[1:]] == [
        *["group_used_at_upstream"] * WAITING_MAX,
        "groups_used_at_upstream_not_told",
    ]
    assert logs[-1]["number"] == 7
