"""Three pods in one process: what replication promises, with real logs and journals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.support.replicas import ReplicaPods


@pytest_asyncio.fixture
async def pods(tmp_path: Path) -> AsyncIterator[ReplicaPods]:
    """Pod 0 leads partition 0."""
    pods = ReplicaPods(tmp_path)
    await pods.start()
    await pods.elect(0, bootstrap=True)
    yield pods
    pods.network.heal()
    await pods.stop()


async def test_commit_is_answered_by_a_majority_and_reaches_all(pods: ReplicaPods) -> None:
    await pods[2].kill()
    assert await pods[0].commit(41) == 0
    assert await pods[0].fetch() == 41
    await pods[2].start()
    await pods.caught_up()
    contents = pods.contents()
    assert contents[0] == contents[1] == contents[2]


async def test_leader_killed_nothing_acknowledged_is_lost(pods: ReplicaPods) -> None:
    for offset in range(20):
        assert await pods[0].commit(offset) == 0
    await pods[0].kill()
    await pods.elect(1)
    assert await pods[1].fetch() == 19
    assert await pods[1].commit(20) == 0
    await pods[0].start()
    await pods.caught_up()
    contents = pods.contents()
    assert contents[0] == contents[1] == contents[2]
