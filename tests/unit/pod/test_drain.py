"""How a pod that is to end gives up what it leads: single replicas at once, others when they were moved away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.support.peers import until

from muster_coordinator.log.disk import OsDisk
from muster_coordinator.peers.network import PeerIdentity, PeerNetwork
from muster_coordinator.pod import drain as drain_module
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.control import Pod, PodIdentity
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.podapi.image import MetadataImage, ReplicaPlace
from muster_coordinator.replication.effects import Promise
from muster_coordinator.settings import PeerSettings
from muster_coordinator.states import ShardState
from muster_coordinator.tuning import pacing


class FakeManager:
    """Leads partition 0, which has three replicas, and partition 1, which has one."""

    def __init__(self) -> None:
        self.replicas = {p: SimpleNamespace(promised=SimpleNamespace(epoch=4), partition=p) for p in (0, 1)}
        self.shards = {p: SimpleNamespace(state=ShardState.ACTIVE, partition=p) for p in (0, 1)}
        self.hosts: dict[int, object] = {}
        self.learners: dict[int, tuple[str, ...]] = {}
        self.operator_heard_count = 0
        self.draining = False
        self.health = SimpleNamespace(cannot_write="", damage={})
        self.resigned: list[tuple[int, int]] = []

    def set_learners(self, partition: int, log_ids: tuple[str, ...]) -> None:
        self.learners[partition] = log_ids

    def operator_heard(self) -> None:
        self.operator_heard_count += 1

    def start_draining(self) -> None:
        self.draining = True

    async def resign(self, partition: int, epoch: int) -> None:
        assert self.draining
        self.resigned.append((partition, epoch))
        del self.shards[partition]


class FakeCore:
    """Of partition 0, which another replica is about to lead in epoch 5; `committed`: it does."""

    log_id = "log-0"

    def __init__(self) -> None:
        self.committed = False
        self.commit_point = 7
        self.promise = Promise(5, "log-1")
        self.log = SimpleNamespace(epoch_before=lambda offset: 5 if self.committed else 4)


IMAGE = MetadataImage(
    token=1,
    version=1,
    cluster_id="c",
    brokers=(),
    offsets_partitions=2,
    leaders=(),
    places=(*(ReplicaPlace(0, f"log-{n}", f"pod-{n}") for n in range(3)), ReplicaPlace(1, "single", "pod-0")),
)


def draining_pod(
    tmp_path: Path, manager: FakeManager, drain_timeout_ms: int, image: MetadataImage | None = IMAGE
) -> Pod:
    pod = Pod(
        PodIdentity("pod-0", 0, "uid", "boot", "1", "127.0.0.1:9092"),
        cast(Any, manager),
        ClusterView("pod-0"),
        PeerNetwork(PeerIdentity("pod-0", "uid"), lambda: None, buffer_bytes=1 << 20),
        LastImage(OsDisk(), tmp_path),
        PeerSettings(drain_timeout_ms=drain_timeout_ms),
        MirrorHealth(),
        delete_offsets_of_removed_topics=False,
    )
    if image is not None:
        pod.update_metadata(image)
    return pod


async def test_partition_with_other_replicas_is_led_until_it_was_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "OPERATOR_AWAY_S", 3600.0)
    manager = FakeManager()
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=60_000)
    draining = asyncio.create_task(pod.drain())
    await until(lambda: manager.resigned == [(1, 5)])
    assert manager.draining
    for _ in range(5):
        pod.operator_heard()
        await asyncio.sleep(pacing.POLL_S)
    assert not draining.done()
    del manager.shards[0]  # another pod was elected
    await draining
    assert manager.resigned == [(1, 5)]
    await pod.stop()


async def test_replicas_hear_of_the_operator_and_of_their_places(tmp_path: Path) -> None:
    manager = FakeManager()
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=0)
    assert manager.learners == {0: ("log-0", "log-1", "log-2"), 1: ("single",)}
    assert manager.operator_heard_count == 1
    pod.operator_heard()
    assert manager.operator_heard_count == 2
    await pod.stop()


async def test_pod_stays_until_the_new_leader_has_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "OPERATOR_AWAY_S", 3600.0)
    monkeypatch.setattr(drain_module, "HAND_OVER_S", 3600.0)
    manager, core = FakeManager(), FakeCore()
    manager.hosts = {0: SimpleNamespace(core=core)}
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=60_000)
    draining = asyncio.create_task(pod.drain())
    await until(lambda: manager.draining)
    del manager.shards[0]  # sealed by the new leader, which fetches what it lacks
    for _ in range(5):
        pod.operator_heard()
        await asyncio.sleep(pacing.POLL_S)
    assert not draining.done()
    core.committed = True
    await draining
    await pod.stop()


async def test_pod_stays_no_longer_than_the_limit_for_a_leader_that_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "HAND_OVER_S", 0.05)
    manager = FakeManager()
    manager.hosts = {0: SimpleNamespace(core=FakeCore())}
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=0)
    await pod.drain()
    assert manager.resigned == [(1, 5), (0, 5)]
    await pod.stop()


async def test_what_nobody_moves_is_resigned_after_the_limit(tmp_path: Path) -> None:
    manager = FakeManager()
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=50)
    await asyncio.gather(pod.drain(), pod.drain())
    assert manager.resigned == [(1, 5), (0, 5)]
    await pod.stop()


async def test_drain_goes_on_for_as_long_as_partitions_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each move gives the next one the whole time."""
    timeout_s, moves = 0.5, 4
    manager = FakeManager()
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=round(timeout_s * 1000))
    for partition in range(2, 2 + moves):
        manager.replicas[partition] = SimpleNamespace(promised=SimpleNamespace(epoch=4), partition=partition)
        manager.shards[partition] = SimpleNamespace(state=ShardState.ACTIVE, partition=partition)
    places = [ReplicaPlace(p, f"log-{p}-{n}", f"pod-{n}") for p in range(2, 2 + moves) for n in range(3)]
    pod.update_metadata(msgspec.structs.replace(IMAGE, version=2, places=(*IMAGE.places, *places)))
    waits: list[float] = []

    async def move_one(done: Callable[[], bool], timeout_s: float) -> bool:
        """As if that had taken nearly all the time."""
        waits.append(timeout_s)
        if len(waits) <= moves:
            assert manager.resigned == [(1, 5)], f"given up before wait {waits}"
            del manager.shards[1 + len(waits)]
        return done()

    monkeypatch.setattr(pod._drain, "_while_operator_is_near", move_one)
    await pod.drain()
    assert waits == [timeout_s] * (moves + 1) + [drain_module.HAND_OVER_S]
    assert manager.resigned == [(1, 5), (0, 5)], "what nobody moved"
    await pod.stop()


async def test_without_an_operator_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "OPERATOR_AWAY_S", 0.05)
    manager = FakeManager()
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=60_000)
    await pod.drain()
    assert manager.resigned == [(1, 5), (0, 5)]
    await pod.stop()
