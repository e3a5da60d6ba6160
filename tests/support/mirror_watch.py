"""The positions of a mirror and of Kafka's own consumer in the same topic, at the same moments."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path
from typing import Self

import msgspec
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import java

from muster_cli.local.data_dir import RunRecord
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.mirror import MirrorAnswer, MirroredPartition

OFFSETS = "__consumer_offsets"
EVERY_S = 0.1
_PLACE = re.compile(rb"Partition:(\d+)\tOffset:(\d+)")
_LATEST = -1

Positions = dict[int, int]
"""Offset of the next record to read, by partition."""


class ConsoleReader:
    """Kafka's console consumer of `__consumer_offsets`, from the start."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.positions: Positions = {}
        self.count = 0
        self.first_s = 0.0
        """Monotonic clock, when its first record came."""

    async def __aenter__(self) -> Self:
        shown = ("print.partition=true", "print.offset=true", "print.value=false")
        self._process = await asyncio.create_subprocess_exec(
            *java("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", self._bootstrap),
            *("--topic", OFFSETS, "--from-beginning"),
            *(word for each in shown for word in ("--formatter-property", each)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """SIGTERM: its member leaves its group."""
        self._process.terminate()
        await self._process.wait()
        await self._task

    async def _run(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while data := await self._process.stdout.read(1 << 18):
            lines, _, rest = (rest + data).rpartition(b"\n")
            for partition, offset in _PLACE.findall(lines):
                self.positions[int(partition)] = int(offset) + 1
                self.count += 1
            self.first_s = self.first_s or time.monotonic()


class Ends:
    """The end offsets of the upstream's partitions, asked of their leaders, which do not change here."""

    def __init__(self, leaders: dict[int, list[int]]) -> None:
        """`leaders`: partitions by the port of their leader."""
        self._leaders = leaders
        self._clients: dict[int, KafkaClient] = {}

    async def ask(self) -> Positions:
        m = schema("list_offsets", 5)
        found: Positions = {}
        for port, partitions in self._leaders.items():
            if port not in self._clients:
                self._clients[port] = await KafkaClient.connect(port)
            asked = tuple(
                m.ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=_LATEST)
                for each in partitions
            )
            topic = m.ListOffsetsTopic(name=OFFSETS, partitions=asked)
            answer = await self._clients[port].call(
                m.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
            )
            found |= {each.partition_index: each.offset for each in answer.topics[0].partitions}
        return found

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


class MirrorReader:
    """Reads the state of the mirrors in the pods of `muster local up`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._session = new_session()

    async def partitions(self) -> list[MirroredPartition]:
        try:
            record = msgspec.json.decode((self._data / "run.json").read_bytes(), type=RunRecord)
        except FileNotFoundError:
            return []
        found: list[MirroredPartition] = []
        for pod in record.pods:
            try:
                answer = await PodClient(self._session, pod.name, pod.api_address).read("/v1/mirror", {})
            except PodApiError:
                continue  # it does not serve yet
            found += msgspec.json.decode(answer, type=MirrorAnswer).partitions
        return found

    async def close(self) -> None:
        await self._session.close()


def behind(ends: Positions, positions: Positions) -> int:
    """Records, markers included, that were not read yet."""
    return sum(max(end - positions.get(partition, 0), 0) for partition, end in ends.items())


class LagWatch:
    """Samples of both lags, from entering to leaving. Positions are asked before ends: a lag is never shown as less
    than it was."""

    def __init__(self, ends: Ends, mirror: MirrorReader, console: ConsoleReader) -> None:
        self.mirror: list[int] = []
        self.console: list[int] = []
        self._sources = (ends, mirror, console)
        self._leaving = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving.set()  # not cancelled: an answer that nobody took would be that to the next request
        await self._task

    async def _run(self) -> None:
        ends, mirror, console = self._sources
        while not self._leaving.is_set():
            mirrored = {each.partition: each.position for each in await mirror.partitions()}
            consumed = dict(console.positions)
            now = await ends.ask()
            self.mirror.append(behind(now, mirrored))
            self.console.append(behind(now, consumed))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), EVERY_S)
