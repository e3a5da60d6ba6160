"""Logs that left their sets are deleted: not while they may count again, and to the end after a crash."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from tests.support.replicas import ReplicaPods
from tests.unit.pod.test_drain import IMAGE
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest, pod

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.peers.network import PeerIdentity, PeerNetwork
from muster_coordinator.pod import removing
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.control import Pod, PodIdentity
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.podapi.models import RemovalRequest, RemovalsRequest
from muster_coordinator.replica.ports import Turns
from muster_coordinator.replica.storage_work import all_durable
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.settings import PeerSettings
from muster_coordinator.shard.fencing import Fencing

__all__ = ["pod"]

DIRECTORY = DATA / "__consumer_offsets-0"


async def led_once(pod: PodUnderTest, epoch: int = 3) -> str:
    """The id of a log with a commit, that a re-shard has closed and that is led no more: it promised nobody the epoch
    after that of its leader.
    """
    await pod.lead(epoch, bootstrap=True)
    assert await pod.commit(41) == 0
    await Fencing(pod.manager.shards, lambda partition: None).close(0, reshard=9, importing=False)
    log_id = pod.manager.replicas[0].log_id
    await pod.manager.resign(0, epoch + 1)
    return log_id


async def test_removed_log_is_gone_also_after_a_restart_and_nothing_of_it_is_saved(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    removed = await pod.manager.remove_replica(0, log_id, 4, is_served=False)
    assert removed.status is CallStatus.ACCEPTED
    assert 0 not in pod.manager.replicas
    assert 0 not in pod.manager.hosts
    assert pod.disk.listdir(DIRECTORY) == []
    await pod.restart()
    assert 0 not in pod.manager.replicas
    assert "lost" not in pod.disk.listdir(DATA)
    assert (await pod.manager.remove_replica(0, log_id, 4, is_served=False)).status is CallStatus.ACCEPTED, "idempotent"
    assert pod.manager.metrics.replicas_removed == 0


async def test_another_log_is_created_in_its_place_and_kept(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    await pod.manager.remove_replica(0, log_id, 4, is_served=False)
    created = await pod.manager.create_replica(0)
    assert created.log_id != log_id
    assert not created.used
    assert (await pod.manager.remove_replica(0, log_id, 9, is_served=False)).status is CallStatus.ACCEPTED
    await pod.restart()
    assert pod.manager.replicas[0].log_id == created.log_id
    assert (await pod.lead(1, bootstrap=True)).status is CallStatus.ACCEPTED
    assert await pod.commit(7) == 0


async def test_log_that_promised_a_higher_epoch_is_kept(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    refused = await pod.manager.remove_replica(0, log_id, 3, is_served=False)
    assert (refused.status, refused.epoch) == (CallStatus.STALE_EPOCH, 4)
    assert (await pod.lead(5)).status is CallStatus.ACCEPTED
    await Fencing(pod.manager.shards, lambda partition: None).open(0, reshard=9)
    assert await pod.fetch() == 41


async def test_log_that_leads_is_kept(pod: PodUnderTest) -> None:
    await pod.lead(3, bootstrap=True)
    assert (
        await pod.manager.remove_replica(0, pod.manager.replicas[0].log_id, 3, is_served=False)
    ).status is CallStatus.INVALID
    assert await pod.commit(1) == 0


@pytest.mark.parametrize("kept", ["muster.promise", "00000000000000000000.log"])
async def test_removal_that_was_cut_short_is_finished_at_the_next_start(pod: PodUnderTest, kept: str) -> None:
    log_id = await led_once(pod)
    pod.disk.fail_with(errno.EIO, "unlink", only=lambda path: path.name == kept)
    assert (await pod.manager.remove_replica(0, log_id, 4, is_served=False)).status is CallStatus.CANNOT_WRITE
    assert kept in pod.disk.listdir(DIRECTORY)
    pod.disk.fault = None
    await pod.restart()
    assert pod.disk.listdir(DIRECTORY) == []
    assert 0 not in pod.manager.replicas
    assert not pod.manager.health.damage


async def test_closed_log_of_a_partition_that_clients_know_is_kept(pod: PodUnderTest) -> None:
    """A re-shard is under way: the log is still to be copied, or to be opened again."""
    log_id = await led_once(pod)
    assert (await pod.manager.remove_replica(0, log_id, 4)).status is CallStatus.INVALID
    assert pod.manager.replicas[0].log_id == log_id


async def test_log_of_a_partition_that_no_reshard_has_closed_is_kept(pod: PodUnderTest) -> None:
    await pod.lead(3, bootstrap=True)
    assert await pod.commit(41) == 0
    log_id = pod.manager.replicas[0].log_id
    await pod.manager.resign(0, 4)
    assert (await pod.manager.remove_replica(0, log_id, 9, is_served=False)).status is CallStatus.INVALID
    assert (await pod.lead(5)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 41


async def test_closed_log_is_known_as_such_after_a_restart_too(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    await pod.restart()
    removed = await pod.manager.remove_replica(0, log_id, 4, is_served=False)
    assert removed.status is CallStatus.ACCEPTED


async def test_log_that_was_never_used_is_deleted(pod: PodUnderTest) -> None:
    created = await pod.manager.create_replica(0)
    assert (await pod.manager.remove_replica(0, created.log_id, 0)).status is CallStatus.ACCEPTED


@pytest.mark.interpreted
async def test_election_during_a_removal_finds_no_replica(pod: PodUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that it began would promise and ack for a log that is about to be deleted."""
    log_id = await led_once(pod)
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def wait(replica: StoredReplica, turns: Turns) -> None:
        has_begun.set()
        await may_go_on.wait()
        await all_durable(replica, turns)

    monkeypatch.setattr(removing, "all_durable", wait)
    host = pod.manager.hosts[0]
    removal = asyncio.ensure_future(pod.manager.remove_replica(0, log_id, 4, is_served=False))
    await has_begun.wait()
    election = asyncio.ensure_future(pod.manager.elect(0, 4, (log_id,)))
    await asyncio.wait((election,), timeout=0.1)
    may_go_on.set()
    assert (await removal).status is CallStatus.ACCEPTED
    assert (await election).status is CallStatus.WRONG_REPLICA
    assert host.core is None
    assert pod.disk.listdir(DIRECTORY) == []


# Logs of a set


@pytest_asyncio.fixture
async def pods(tmp_path: Path) -> AsyncIterator[ReplicaPods]:
    """Three pods with one partition that has a commit; the first pod leads."""
    made = ReplicaPods(tmp_path)
    await made.start()
    await made.elect(0, bootstrap=True)
    assert await made[0].commit(41) == 0
    await made.caught_up()
    yield made
    await made.stop()


def controlled(pods: ReplicaPods, index: int) -> Pod:
    """The pod as its HTTP API has it."""
    pod = pods[index]
    return Pod(
        PodIdentity(pod.name, index, "uid", "boot", "1", "127.0.0.1:9092"),
        pod.up,
        ClusterView(pod.name),
        PeerNetwork(PeerIdentity(pod.name, "uid"), lambda: None, buffer_bytes=1 << 20),
        LastImage(OsDisk(), pod.directory),
        PeerSettings(),
        MirrorHealth(),
        delete_offsets_of_removed_topics=False,
    )


async def test_nine_calls_of_anybody_delete_no_log(pods: ReplicaPods) -> None:
    """For each pod: a resignation, an image without anything, a removal, with the highest numbers there are."""
    highest = 2**31 - 1
    logs = [pod.log_id() for pod in pods.pods]
    empty = msgspec.structs.replace(IMAGE, token=99, version=99, places=(), offsets_base=999)
    for index, log_id in enumerate(logs):
        pod = controlled(pods, index)
        await pods[index].up.resign(0, 1_000 + index)
        pod.update_metadata(empty)
        for epoch in (1_000 + index, highest):
            answer = await pod.remove_replicas(RemovalsRequest(99, (RemovalRequest(0, log_id, epoch),)))
            assert [each.status for each in answer.results] == [CallStatus.INVALID]
            assert "may still count" in answer.results[0].message
        await pod.stop()
    assert [pod.log_id() for pod in pods.pods] == logs
    await pods.elect(1, epoch=2_000)
    assert await pods[1].fetch() == 41


async def shrink(pods: ReplicaPods, *, fed: bool = True) -> tuple[str, ...]:
    """The set becomes the first pod alone; the others are `fed` on, as by the image. Returns all log ids."""
    before = pods.sets[0]
    pods[0].up.set_learners(0, before[1:] if fed else ())
    assert (await pods.try_elect(0, replicas=before[:1], previous=before, force=True)).status is CallStatus.ACCEPTED
    await pods.until(lambda: not (pods[0].up.hosts[0].core.log.sets.previous_replicas))  # type: ignore[union-attr]
    return before


async def removed(pods: ReplicaPods, index: int, log_id: str, epoch: int = 2**31 - 1) -> CallResult:
    return await pods[index].up.remove_replica(0, log_id, epoch)


async def test_log_that_left_is_deleted_once_it_knows_that_the_set_is_final_without_it(pods: ReplicaPods) -> None:
    _, second, third = await shrink(pods)
    for index in (1, 2):
        await pods.until(lambda index=index: pods[index].up.hosts[0].core.has_left)
    assert (await removed(pods, 1, second)).status is CallStatus.ACCEPTED
    assert (await removed(pods, 2, third)).status is CallStatus.ACCEPTED
    assert 0 not in pods[1].up.replicas
    assert await pods[0].commit(42) == 0


async def test_log_that_was_not_told_the_end_of_the_change_is_kept(pods: ReplicaPods) -> None:
    _, second, _ = await shrink(pods, fed=False)
    assert (await removed(pods, 1, second)).status is CallStatus.INVALID
    pods[0].up.set_learners(0, (second,))
    await pods.until(lambda: pods[1].up.hosts[0].core.has_left)  # type: ignore[union-attr]
    assert (await removed(pods, 1, second)).status is CallStatus.ACCEPTED


async def test_proof_is_gone_after_a_restart_until_a_leader_gives_it_again(pods: ReplicaPods) -> None:
    """What is committed is not known without a leader."""
    _, second, _ = await shrink(pods)
    await pods.until(lambda: pods[1].up.hosts[0].core.has_left)  # type: ignore[union-attr]
    pods.network.isolate("pod-1")
    await pods[1].stop()
    await pods[1].start()
    assert (await removed(pods, 1, second)).status is CallStatus.INVALID
    pods.network.heal()
    await pods.until(lambda: (core := pods[1].up.hosts[0].core) is not None and core.has_left)
    assert (await removed(pods, 1, second)).status is CallStatus.ACCEPTED


async def test_log_that_left_and_promised_a_higher_epoch_is_kept(pods: ReplicaPods) -> None:
    """An election that names it again has begun, and may count on what it promised."""
    _, second, _ = await shrink(pods)
    await pods.until(lambda: pods[1].up.hosts[0].core.has_left)  # type: ignore[union-attr]
    pods.network.isolate("pod-1")
    await pods[1].up.resign(0, 50)
    assert (await removed(pods, 1, second)).status is CallStatus.INVALID
