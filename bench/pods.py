"""One coordinator pod without an operator: the measurement itself calls its API, so that it decides what loads when."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from builds import BenchError
from servers import START_DEADLINE_S, ended_or_late, process

from muster_cli.local.ports import free_ports
from muster_coordinator.calls import CallStatus
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    PartitionEvent,
    ReplicaStatus,
    StatusEvent,
)
from muster_coordinator.states import ShardState

POD = "pod-0"
POLL_S = 0.02
CALL_S = 60.0
SILENCE_S = 60.0
LOAD_DEADLINE_S = 600.0
"""The seconds in which millions of records have to be loaded, on a machine with other work."""


@dataclass
class RunningPod:
    """`statuses`: what the pod's stream last said of each partition; `active_at`: when it first said ACTIVE."""

    api: PodClient
    kafka_port: int
    pid: int
    metrics_url: str
    statuses: dict[int, ReplicaStatus] = field(default_factory=dict)
    active_at: dict[int, float] = field(default_factory=dict)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def follow(self) -> None:
        """Keep `statuses` up to date, for ever."""
        async for event in self.api.watch(SILENCE_S):
            if isinstance(event, StatusEvent):
                seen = event.status.partitions
            elif isinstance(event, PartitionEvent):
                seen = (event.partition,)
            else:
                continue
            for status in seen:
                self.statuses[status.partition] = status
                if status.state is ShardState.ACTIVE:
                    self.active_at.setdefault(status.partition, time.monotonic())
            async with self._news:
                self._news.notify_all()

    async def logs_open(self, count: int) -> None:
        """Wait until the logs of `count` partitions are recovered."""
        await self._until(lambda: sum(s.log_end_offset >= 0 for s in self.statuses.values()) >= count)

    async def elect(self, partitions: Collection[int], epoch: int) -> None:
        """Make the pod lead `partitions`, which all have a used log, and wait until they are ACTIVE."""
        elections = tuple(Election(p, epoch, (self.statuses[p].log_id,)) for p in partitions)
        answer = await self.api.elect(ElectionsRequest(elections), timeout_s=CALL_S)
        refused = [r for r in answer.results if r.status not in (CallStatus.ACCEPTED, CallStatus.LOADING)]
        if refused:
            raise BenchError(f"the pod refused an election: {refused[0]}")
        await self._until(lambda: all(p in self.active_at for p in partitions))

    async def push_metadata(self, partitions: int, topic: str, topic_partitions: int, epoch: int) -> None:
        await self.api.update_metadata(
            MetadataImage(
                token=1,
                version=1,
                cluster_id="bench",
                brokers=(Broker(0, "127.0.0.1", self.kafka_port, POD),),
                offsets_partitions=partitions,
                leaders=tuple(PartitionLeader(p, 0, epoch) for p in range(partitions)),
                topics=(DeclaredTopic(topic, topic_partitions),),
            )
        )

    async def slices(self) -> list[tuple[float, int]]:
        """(ms, load slices that took at most that of the CPU), ascending; the last one is all of them."""
        page = await asyncio.to_thread(lambda: urlopen(self.metrics_url, timeout=CALL_S).read().decode())
        found = re.findall(r'^muster_load_slice_seconds_bucket\{le="([^"]+)"\} (\S+)$', page, re.MULTILINE)
        return [(float(bound) * 1000, int(float(taken))) for bound, taken in found]

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with self._news, asyncio.timeout(LOAD_DEADLINE_S):
            await self._news.wait_for(holds)
            failed = [s for s in self.statuses.values() if s.state is ShardState.FAILED]
            if failed:
                raise BenchError(f"partition {failed[0].partition} failed: {failed[0].message}")


@asynccontextmanager
async def running_pod(directory: Path, data: Path) -> AsyncIterator[RunningPod]:
    """A pod over the data directory `data`; its output goes into `directory`. Raises BenchError."""
    kafka_port, api_port = free_ports(2)
    command = [
        *(sys.executable, "-m", "muster_coordinator.process.main", "--pod", POD, "--data-dir", str(data)),
        *("--kafka-listen", f"127.0.0.1:{kafka_port}", "--api-listen", f"127.0.0.1:{api_port}"),
        *("--peer-listen", "127.0.0.1:0"),
    ]
    output = directory / "pod.out"
    metrics_url = f"http://127.0.0.1:{api_port}/metrics"
    with process(command, output) as child:
        async with new_session() as session:
            pod = RunningPod(PodClient(session, POD, f"127.0.0.1:{api_port}"), kafka_port, child.pid, metrics_url)
            deadline = time.monotonic() + START_DEADLINE_S
            while not await _listens(pod.api):
                error = ended_or_late(child, deadline, output)
                if error:
                    raise BenchError(error)
                await asyncio.sleep(POLL_S)
            following = asyncio.create_task(pod.follow())
            try:
                yield pod
            finally:
                following.cancel()


async def _listens(api: PodClient) -> bool:
    try:
        return (await api.status()).started
    except PodApiError:
        return False
