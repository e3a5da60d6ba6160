"""Three real pods, replication factor 3, driven through the pod API: nothing acknowledged is lost, whoever dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.pod import POLL_S, PodProcess
from tests.support.replicated import LIMIT_S, GroupClient, ReplicatedPods, group_of

from muster_coordinator.calls import CallStatus
from muster_coordinator.podapi.models import Election, ElectionsRequest, StatusEvent
from muster_coordinator.states import ReplicaRole, ShardState

pytestmark = pytest.mark.integration


class Committer:
    """Commits rising offsets of one group until it is stopped; knows the last acknowledged one."""

    def __init__(self, pods: ReplicatedPods, group: str) -> None:
        self.group = group
        self.acknowledged = -1
        self._client = GroupClient(pods)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._client.commit(self.group, self.acknowledged + 1)
            self.acknowledged += 1

    async def further(self, commits: int = 50) -> None:
        """Wait for so many more."""
        goal = self.acknowledged + commits
        while self.acknowledged < goal:
            assert not self._task.done(), self._task.exception()
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._client.close()


async def check(pods: ReplicatedPods, *committers: Committer) -> None:
    """What was acknowledged is there. One more may be: its answer was on its way."""
    client = GroupClient(pods)
    for one in committers:
        assert await client.fetch(one.group) in (one.acknowledged, one.acknowledged + 1)
    await client.close()


async def until_lost(pod: PodProcess, *names: str) -> None:
    """Wait until `pod` hears all others but these."""
    async with asyncio.timeout(LIMIT_S):
        while (await pod.api.status()).lost_peers != names:
            await asyncio.sleep(POLL_S)


async def test_first_election_of_three_empty_replicas_and_commits_reach_all_of_them(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path) as pods:
        client = GroupClient(pods)
        for partition in range(3):
            for offset in range(20):
                await client.commit(group_of(partition, 3), offset)
        await client.close()
        for partition in range(3):
            assert await pods.caught_up(partition) >= 20
            epoch = pods.leaders[partition][1]  # 1, if the machine did not stall
            for pod in range(3):
                status = await pods.status(partition, pod)
                leads = pod == partition
                assert status.role == ("leader" if leads else "follower")
                assert status.leader == pods.log_ids[partition][partition]
                assert (status.epoch, status.leader_epoch) == (epoch, epoch if leads else -1)
                assert set(status.replicas) == set(pods.log_ids[partition])
                assert status.used
            leader = await pods.status(partition, partition)
            assert leader.sets_committed
            assert {f.log_id for f in leader.followers} == set(pods.log_ids[partition]) - {leader.log_id}
            async with asyncio.timeout(LIMIT_S):  # the slowest ack may be on its way
                while {f.end_offset for f in leader.followers} != {leader.log_end_offset}:
                    await asyncio.sleep(POLL_S)
                    leader = await pods.status(partition, partition)
        for one in pods.pods:
            status_of_pod = await one.api.status()
            assert status_of_pod.peer_address == f"127.0.0.1:{one.peer_port}"
            await until_lost(one)


@pytest.mark.parametrize("flush_os", [0, 1])  # the page cache survives a process
async def test_leader_killed_under_commits_a_follower_is_elected_and_nothing_is_lost(
    tmp_path: Path, flush_os: int
) -> None:
    async with ReplicatedPods(tmp_path, partitions=3, config=[f"muster.flush.os={flush_os}"]) as pods:
        committers = [Committer(pods, group_of(partition, 3, n)) for partition in (0, 1) for n in range(3)]
        for one in committers:
            await one.further()
        pods.pods[0].kill()
        await until_lost(pods.pods[1], "pod-0")
        await pods.elect(0, 1)
        for one in committers:
            await one.further()
            await one.stop()
        await check(pods, *committers)
        await pods.pods[0].start()
        await pods.push_image()
        await pods.caught_up(0)
        assert (await pods.status(0, 0)).role is ReplicaRole.FOLLOWER
        await pods.elect(0, 0, force=True)  # the one that was dead has everything
        await check(pods, *committers)


async def test_frozen_leader_is_lost_to_the_others_no_client_is_sent_to_it_and_it_comes_back_as_follower(
    tmp_path: Path,
) -> None:
    async with ReplicatedPods(tmp_path, partitions=1) as pods:
        group = group_of(0, 1)
        client = GroupClient(pods)
        await client.commit(group, 1)
        frozen = pods.pods[0]
        assert frozen.process is not None
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            for pod in pods.pods[1:]:
                await until_lost(pod, "pod-0")
                assert await client.coordinator_port(group, ask=pod.node_id) != frozen.kafka_port
            await pods.elect(0, 1, push=False)
            assert await client.coordinator_port(group, ask=1) == pods.pods[1].kafka_port
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        for pod in pods.pods:
            await until_lost(pod)
        await pods.push_image()
        await client.commit(group, 2)
        await pods.caught_up(0)
        status = await pods.status(0, 0)
        assert (status.role, status.leader) == ("follower", pods.log_ids[0][1])
        await client.close()


async def test_follower_killed_commits_go_on_and_it_catches_up_when_it_is_back(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path, partitions=1) as pods:
        committer = Committer(pods, group_of(0, 1))
        await committer.further()
        epoch = (await pods.status(0, 0)).leader_epoch
        pods.pods[2].kill()
        await committer.further(200)
        assert (await pods.status(0, 0)).leader_epoch == epoch, "the leader does not change"
        await until_lost(pods.pods[0], "pod-2")
        await pods.pods[2].start()
        await committer.further()
        await committer.stop()
        await pods.caught_up(0)
        await until_lost(pods.pods[0])


async def test_pods_without_an_operator_find_one_another_after_all_were_killed(tmp_path: Path) -> None:
    async with ReplicatedPods(
        tmp_path, partitions=2, config=["muster.self.nomination.after.ms=1000"], elects_again=False
    ) as pods:
        committers = [Committer(pods, group_of(partition, 2)) for partition in range(2)]
        for one in committers:
            await one.further()
            await one.stop()
        for pod in pods.pods:
            pod.kill()
        for pod in pods.pods:
            await pod.start()
        for pod in pods.pods:
            await until_lost(pod)
        await check(pods, *committers)  # replicas nominated themselves, and clients are answered from the last image


async def test_without_an_operator_a_dead_leader_is_replaced_by_the_others(tmp_path: Path) -> None:
    async with ReplicatedPods(
        tmp_path, partitions=1, config=["muster.self.nomination.after.ms=500"], elects_again=False
    ) as pods:
        committer = Committer(pods, group_of(0, 1))
        await committer.further()
        pods.pods[0].kill()
        await committer.further()
        await committer.stop()
        await check(pods, committer)
        statuses = [await pods.status(0, pod) for pod in (1, 2)]
        assert sorted(s.role for s in statuses) == ["follower", "leader"]
        assert max(s.epoch for s in statuses) > 1


async def test_clients_find_the_new_leader_before_any_pod_has_a_new_image(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path, partitions=1) as pods:
        client = GroupClient(pods)
        group = group_of(0, 1)
        await client.commit(group, 1)
        await pods.elect(0, 1, force=True, push=False)
        for asked in range(3):
            async with asyncio.timeout(LIMIT_S):  # pod 2 may have slept through the election of the other two
                while await client.coordinator_port(group, ask=asked) != pods.pods[1].kafka_port:
                    await asyncio.sleep(POLL_S)
        assert await client.fetch(group) == 1
        await client.close()


async def test_copied_log_is_refused_by_all_pods_until_the_copy_is_gone(tmp_path: Path) -> None:
    """Pod 3 comes back with what was on the volume of pod 1. The other three are a majority without both."""
    async with ReplicatedPods(tmp_path, count=5, partitions=1) as pods:
        committer = Committer(pods, group_of(0, 1))
        await committer.further()
        original, copy = pods.pods[1], pods.pods[3]
        for pod in (original, copy):
            await asyncio.get_running_loop().run_in_executor(None, pod.terminate)
        target = copy.data_dir / "__consumer_offsets-0"
        shutil.rmtree(target)
        shutil.copytree(original.data_dir / "__consumer_offsets-0", target)
        await original.start()
        await copy.start()
        await pods.push_image()
        for pod in (1, 3):
            async with asyncio.timeout(LIMIT_S):
                while (status := await pods.status(0, pod)).reason != "DuplicateLog":
                    await asyncio.sleep(POLL_S)
            assert status.state is ShardState.FAILED
            assert status.log_id == pods.log_ids[0][1]
            assert "is on pods pod-1, pod-3: remove the volume that is a copy" in status.message
            refused = Election(0, pods.leaders[0][1] + 1, pods.log_ids[0], force=True)
            (result,) = (await pods.pods[pod].api.elect(ElectionsRequest((refused,)))).results
            assert result.status is CallStatus.DAMAGED
        await committer.further()
        await committer.stop()
        copy.kill()
        await pods.caught_up(0)
        await pods.elect(0, 1, force=True)
        await check(pods, committer)


async def test_draining_pod_leads_on_until_its_partitions_are_moved_then_ends(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path, partitions=1, config=["muster.drain.timeout.ms=20000"]) as pods:
        committer = Committer(pods, group_of(0, 1))
        await committer.further()
        leader = pods.pods[0]
        async with aclosing(leader.api.watch(silence_s=10)) as events:  # as the operator does
            ending = asyncio.get_running_loop().run_in_executor(None, leader.terminate)
            async for event in events:
                if isinstance(event, StatusEvent) and event.status.draining:
                    break
            assert (await pods.status(0, 0)).state is ShardState.ACTIVE
            refused = Election(0, pods.leaders[0][1] + 1, pods.log_ids[0], force=True)
            (result,) = (await leader.api.elect(ElectionsRequest((refused,)))).results
            assert result.status is CallStatus.CANNOT_WRITE
            await pods.elect(0, 1, force=True)
            await committer.further()
        assert await ending == 0
        await committer.further()
        await committer.stop()
        await check(pods, committer)


async def test_drain_without_an_operator_resigns_at_once(tmp_path: Path) -> None:
    async with ReplicatedPods(tmp_path, partitions=1, config=["muster.drain.timeout.ms=60000"]) as pods:
        await asyncio.sleep(0)
        started_s = time.monotonic()
        assert await asyncio.get_running_loop().run_in_executor(None, pods.pods[0].terminate) == 0
        assert time.monotonic() - started_s < 20
        await pods.elect(0, 1)
