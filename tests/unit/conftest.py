"""Fixtures of several pods in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio
from tests.support.replicas import ReplicaPods

NewPods = Callable[..., Any]


@pytest_asyncio.fixture
async def new_pods(tmp_path: Path) -> AsyncIterator[NewPods]:
    """Makes pods of which pod 0 leads every partition."""
    made: list[ReplicaPods] = []

    async def new(count: int = 3, partitions: int = 1, **options: Any) -> ReplicaPods:
        pods = ReplicaPods(tmp_path, count, partitions, **options)
        made.append(pods)
        await pods.start()
        for partition in range(partitions):
            await pods.elect(0, partition, bootstrap=True)
        return pods

    yield new
    for pods in made:
        pods.network.heal()
        pods.network.delay_s = 0
        pods.network.drop = lambda message: False
        await pods.stop()


@pytest_asyncio.fixture
async def pods(new_pods: NewPods) -> ReplicaPods:
    """Three, with one partition, which pod 0 leads."""
    made: ReplicaPods = await new_pods()
    return made
