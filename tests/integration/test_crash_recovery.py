"""A pod that is killed, or whose files are damaged: what was acknowledged is there, or the partition says why it is
not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod

from muster_coordinator.calls import CallStatus
from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.states import ShardState

pytestmark = pytest.mark.integration

KILLS = 20
GROUPS = 8


async def commit_until_cut_off(pod: SoloPod, group: str, acknowledged: dict[str, int], first: int) -> None:
    """Commit rising offsets until the connection breaks; `acknowledged` holds the last one that was answered."""
    try:
        client = await KafkaClient.connect(pod.kafka_port)
        for offset in range(first, first + 1_000_000):
            if await client.commit(group, offset) == 0:
                acknowledged[group] = offset
    except (OSError, asyncio.IncompleteReadError):
        return


@pytest.mark.timeout(300)
async def test_pod_killed_twenty_times_under_commits_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    epochs: list[int] = []
    async with SoloPod(tmp_path / "data", partitions=4) as pod:
        for round_ in range(KILLS):
            first = 1_000_000 * round_
            before = dict(acknowledged)
            writers = [
                asyncio.create_task(commit_until_cut_off(pod, f"group-{i}", acknowledged, first)) for i in range(GROUPS)
            ]
            async with asyncio.timeout(30):
                while not all(acknowledged.get(f"group-{i}", -1) >= first + 5 * (round_ + 1) for i in range(GROUPS)):
                    await asyncio.sleep(0.005)
            pod.kill()
            await asyncio.gather(*writers)
            assert acknowledged != before
            await pod.start(elect=False)
            promised = {p.epoch for p in await pod.api.partitions()}
            assert promised == {pod.epoch}, "the promise survives the crash"
            stale = await pod.elect_all(epoch=pod.epoch)
            assert {r.status for r in stale} == {CallStatus.STALE_EPOCH}, "never led again in the same epoch"
            await pod.elect_all()
            epochs.append(pod.epoch)
            client = await pod.client()
            for group, offset in acknowledged.items():
                found, error = await client.fetch(group)
                assert error == 0
                assert found in (offset, offset + 1), f"{group}: acknowledged {offset}, found {found}"
            await client.close()
    assert epochs == sorted(set(epochs))


async def written_log(pod: SoloPod, commits: int) -> None:
    client = await pod.client()
    for offset in range(commits):
        assert await client.commit("g", offset) == 0
    await client.close()
    async with asyncio.timeout(30):  # segments are written behind the journal
        while sum(pod.segment(p).stat().st_size for p in range(pod.partitions)) < 80 * commits:
            await asyncio.sleep(0.01)


async def restarted(pod: SoloPod) -> ReplicaStatus:
    """Start the stopped pod, elect it and give its view of partition 0."""
    await pod.start(elect=False)
    await pod.elect_all()
    return (await pod.api.partitions())[0]


@pytest.mark.parametrize("orderly", [True, False], ids=["after SIGTERM", "after SIGKILL"])
@pytest.mark.parametrize("damage", ["torn", "flipped", "zeros"])
async def test_damage_at_the_end_of_the_log_is_recovered(tmp_path: Path, damage: str, orderly: bool) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        await written_log(pod, 20)
        assert (pod.terminate() if orderly else pod.kill()) in (0, None)
        segment = pod.segment()
        data = segment.read_bytes()
        if damage == "torn":
            segment.write_bytes(data[:-7])
        elif damage == "flipped":
            segment.write_bytes(data[:-5] + bytes([data[-5] ^ 0x40]) + data[-4:])
        else:
            segment.write_bytes(data + bytes(4096))
        status = await restarted(pod)
        assert status.state is ShardState.ACTIVE, status
        client = await pod.client()
        found, error = await client.fetch("g")
        assert error == 0
        assert found == 19, "the journal holds what the segment lost"
        assert await client.commit("g", 100) == 0
        await client.close()


async def test_flipped_byte_in_the_middle_makes_the_partition_refuse_and_say_why(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", partitions=2) as pod:
        await written_log(pod, 50)
        pod.terminate()
        led = [p for p in range(2) if pod.segment(p).stat().st_size > 2000]
        assert len(led) == 1, "one of the two partitions holds the group"
        segment = pod.segment(led[0])
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0x01
        segment.write_bytes(data)
        await pod.start(elect=False)
        results = {r.partition: r for r in await pod.elect_all()}
        status = {p.partition: p for p in await pod.api.partitions()}
        damaged, sound = status[led[0]], status[1 - led[0]]
        assert damaged.state is ShardState.FAILED
        assert damaged.reason == "LogDamaged"
        assert segment.name in damaged.message, damaged.message
        assert sound.state is ShardState.ACTIVE, "another partition is not touched"
        if led[0] in results:
            assert results[led[0]].status is CallStatus.DAMAGED
        client = await pod.client()
        assert (await client.fetch("g"))[1] in (15, 16)
        assert bytes(data) == segment.read_bytes(), "nothing of the evidence was changed"
        await client.close()
