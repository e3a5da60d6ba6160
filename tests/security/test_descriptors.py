"""A pod that has too few descriptors for all who connect: those who are in are served on, and its files come first."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

LIMIT = 1024
CONNECTIONS = 1500
BURST = 100
PARTITIONS = 16
SEGMENT_BYTES = 16_384
"""Small: segments, which are files, are made all the time."""


class NarrowPod(SoloPod):
    program = (
        *("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh"),
        *(sys.executable, "-m", "muster_coordinator.process.main"),
    )


@pytest.fixture(autouse=True)
def _room_here() -> Iterator[None]:
    """This process holds the other ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest_asyncio.fixture
async def pod(tmp_path: Path) -> AsyncIterator[NarrowPod]:
    config = [f"offsets.topic.segment.bytes={SEGMENT_BYTES}"]
    async with NarrowPod(tmp_path / "data", partitions=PARTITIONS, config=config) as pod:
        yield pod


class Committer:
    """Commits for one group after another until `stop`, and counts what is refused."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._stopping = self._ended = False
        self.done = 0
        self.errors: list[str] = []

    async def run(self) -> None:
        while not self._stopping:
            try:
                code = await self._client.commit(f"group-{self.done % 50}", self.done)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors.append(repr(error))
                self._ended = True
                return
            if code:
                self.errors.append(f"error code {code}")
            self.done += 1

    async def more(self, count: int) -> None:
        """Returns after `count` more commits, or when there will be none."""
        until = self.done + count
        async with asyncio.timeout(60):
            while self.done < until and not self._ended:
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._stopping = True


async def test_idle_connections_beyond_the_descriptors_disturb_nobody(pod: NarrowPod) -> None:
    committer = Committer(await pod.client())
    committing = asyncio.create_task(committer.run())
    await committer.more(100)
    opened: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS // BURST):
            for _ in range(BURST):
                opened.append(socket.create_connection(("127.0.0.1", pod.kafka_port)))
            await committer.more(50)
        await committer.more(1000)
        closed = await pod.metric("muster_connection_errors_total", reason="no_descriptors")
        fds = await pod.metric("process_open_fds")
        status = await pod.api.status()
    finally:
        for each in opened:
            each.close()
        committer.stop()
    await committing
    assert committer.errors == []
    assert committer.done > 1000
    assert closed >= CONNECTIONS - LIMIT
    assert fds < LIMIT * 7 / 8
    assert [each for each in status.partitions if each.reason] == []
    assert "storage_failed" not in pod.log()
