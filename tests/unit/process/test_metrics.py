"""What a pod shows of logs that it must not serve."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster_coordinator.listener.request_counts import RequestCounts
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.process.metrics import PodCollector
from muster_coordinator.shard.metrics import ShardMetrics


@pytest.fixture
def health() -> StorageHealth:
    return StorageHealth(Partitions(), ShardMetrics(), PodEvents())


def shown(health: StorageHealth) -> list[float]:
    """Damaged replicas, and doubled ones."""
    manager: Any = SimpleNamespace(health=health, shards={}, replicas={}, metrics=ShardMetrics())
    others: Any = None
    found = {
        family.name: family for family in PodCollector(others, manager, others, None, lambda: None, others)._shards()
    }
    return [found[f"muster_{kind}_replicas"].samples[0].value for kind in ("damaged", "doubled")]


def test_replicas_that_were_stopped_are_damaged_too_and_count_once(health: StorageHealth) -> None:
    assert shown(health) == [0, 0]
    health.replica_stopped(3, "a committed record would have been cut")
    assert shown(health) == [1, 0]
    for partition in (3, 4):
        health.log_damaged(partition, DamagedLogError(Path("log"), 0, "found damaged before"))
    assert shown(health) == [2, 0]


def test_replicas_whose_log_another_pod_has_too_are_doubled(health: StorageHealth) -> None:
    health.doubled[3] = "it is on pods a, b"
    assert shown(health) == [0, 1]


@pytest.mark.parametrize(
    ("site", "fenced"), [(None, 0), (SiteStatus("east", held=True), 0), (SiteStatus("east", held=False), 1)]
)
def test_pod_that_may_answer_no_client_is_shown_as_fenced(site: SiteStatus | None, fenced: int) -> None:
    nothing: dict[str, int] = {}
    counts = {"connections": nothing, "accepted": 0, "held_bytes": 0, "throttled": 0}
    by_name = {"connection_errors": nothing, "requests": nothing, "audit": SimpleNamespace(refused=nothing)}
    felt = RequestCounts(SystemClock())
    listener: Any = SimpleNamespace(state=SimpleNamespace(**counts, **by_name, counts=felt))
    others: Any = None
    collector = PodCollector(listener, others, others, None, lambda: site, others)
    found = {family.name: family for family in collector._connections()}
    assert found["muster_site_fenced"].samples[0].value == fenced
