"""Logs that left their sets are deleted: not while they may count again, and to the end after a crash."""

from __future__ import annotations

import errno

import pytest
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest, pod

from muster_coordinator.calls import CallStatus

__all__ = ["pod"]

DIRECTORY = DATA / "__consumer_offsets-0"


async def led_once(pod: PodUnderTest, epoch: int = 3) -> str:
    """The id of a log with a commit, that is led no more and promised nobody the epoch after that of its leader."""
    await pod.lead(epoch, bootstrap=True)
    assert await pod.commit(41) == 0
    log_id = pod.manager.replicas[0].log_id
    await pod.manager.resign(0, epoch + 1)
    return log_id


async def test_removed_log_is_gone_also_after_a_restart_and_nothing_of_it_is_saved(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    removed = await pod.manager.remove_replica(0, log_id, 4)
    assert removed.status is CallStatus.ACCEPTED
    assert 0 not in pod.manager.replicas
    assert 0 not in pod.manager.hosts
    assert pod.disk.listdir(DIRECTORY) == []
    await pod.restart()
    assert 0 not in pod.manager.replicas
    assert "lost" not in pod.disk.listdir(DATA)
    assert (await pod.manager.remove_replica(0, log_id, 4)).status is CallStatus.ACCEPTED, "idempotent"
    assert pod.manager.metrics.replicas_removed == 0


async def test_another_log_is_created_in_its_place_and_kept(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    await pod.manager.remove_replica(0, log_id, 4)
    created = await pod.manager.create_replica(0)
    assert created.log_id != log_id
    assert not created.used
    assert (await pod.manager.remove_replica(0, log_id, 9)).status is CallStatus.ACCEPTED
    await pod.restart()
    assert pod.manager.replicas[0].log_id == created.log_id
    assert (await pod.lead(1, bootstrap=True)).status is CallStatus.ACCEPTED
    assert await pod.commit(7) == 0


async def test_log_that_promised_a_higher_epoch_is_kept(pod: PodUnderTest) -> None:
    log_id = await led_once(pod)
    refused = await pod.manager.remove_replica(0, log_id, 3)
    assert (refused.status, refused.epoch) == (CallStatus.STALE_EPOCH, 4)
    assert (await pod.lead(5)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 41


async def test_log_that_leads_is_kept(pod: PodUnderTest) -> None:
    await pod.lead(3, bootstrap=True)
    assert (await pod.manager.remove_replica(0, pod.manager.replicas[0].log_id, 3)).status is CallStatus.INVALID
    assert await pod.commit(1) == 0


@pytest.mark.parametrize("kept", ["muster.promise", "00000000000000000000.log"])
async def test_removal_that_was_cut_short_is_finished_at_the_next_start(pod: PodUnderTest, kept: str) -> None:
    log_id = await led_once(pod)
    pod.disk.fail_with(errno.EIO, "unlink", only=lambda path: path.name == kept)
    assert (await pod.manager.remove_replica(0, log_id, 4)).status is CallStatus.CANNOT_WRITE
    assert kept in pod.disk.listdir(DIRECTORY)
    pod.disk.fault = None
    await pod.restart()
    assert pod.disk.listdir(DIRECTORY) == []
    assert 0 not in pod.manager.replicas
    assert not pod.manager.health.damage
