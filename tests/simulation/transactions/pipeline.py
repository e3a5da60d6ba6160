"""Clients that wait for no answer: they write several requests to one connection, some of which are answered at once
and others after a commit. All answers come whole and in the order of the requests, as Kafka promises, and what was
acknowledged is seen by what was asked behind it.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from kio.serial import entity_reader
from tests.simulation.injected import Injected
from tests.simulation.loop import SimulatedLoop
from tests.simulation.operating.wire import Wire
from tests.simulation.transactions.producer import Places
from tests.simulation.world import Violation
from tests.support.kafka import commit_request, encode_request, entity, schema

from muster_coordinator.errors import ErrorCode

__all__ = ["Pipeline"]

TOPIC = "t"
BURSTS = 3
REQUESTS = (3, 8)
PATIENCE_S = 2.0


class Pipeline:
    """Implements `process.Process`. Each connection has a group of its own. `answered`: reads behind commits."""

    def __init__(self, name: str, places: Places, wire: Wire, address_of: Callable[[str], str]) -> None:
        """`address_of`: where clients connect to a pod."""
        self.name = name
        self.is_alive = True
        self.answered = 0
        self.world = places.world
        self.random = Random(f"{name} {self.world.options.seed}")
        self._places = places
        self._wire = wire
        self._address_of = address_of
        self._connections = 0
        self._loop = SimulatedLoop(self._at, lambda: self.world.now_ms / 1000, lambda: 0.0, self._failed)
        wire.ips[name] = f"10.2.0.{name.removeprefix('pipe')}"
        self.deliver(self._begin)

    def _begin(self) -> None:
        self._loop.create_task(self._run()).add_done_callback(
            lambda task: self._failed({"exception": task.exception()})
        )

    def deliver(self, do: Callable[[], None]) -> None:
        self._loop.enter(do)

    def _at(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.world.at(math.ceil(delay_s * 1000), callback)

    def _failed(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:  # else it is collected after the run
            raise error

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.random.randint(1, 8 * self.world.options.op_every_ms) / 1000)
            self._connections += 1
            group = f"{self.name}-{self._connections}"
            answers = _Answers(self, group)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    address = self._address_of(self._places.of_group(group)[1].record.leader)
                    await self._wire.connect(self, address, lambda answers=answers: answers)  # type: ignore[misc]
                    for _ in range(BURSTS):
                        await answers.ask(self.random.randint(*REQUESTS))
            except OSError:  # also when it took too long
                pass
            answers.close()


class _Answers(asyncio.Protocol):
    """One connection."""

    def __init__(self, client: Pipeline, group: str) -> None:
        self._client = client
        self._group = group
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._asked: deque[tuple[int, Any, int]] = deque()  # correlation id, request, the offset that it commits
        self._sent = self._acknowledged = 0
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("closed"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def ask(self, count: int) -> None:
        """Raises OSError: the connection is gone."""
        if self._transport is None:
            raise ConnectionResetError("closed")
        frames = []
        for _ in range(count):
            self._sent += 1
            request = self._request()
            self._client.world.injected[Injected.PIPELINED] += bool(self._asked)
            self._asked.append((self._sent, request, self._sent))
            frames.append(encode_request(request, self._sent))
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(frames))
        await self._done

    def _request(self) -> Any:
        kind = self._client.random.choice(("commit", "commit", "fetch", "fetch", "versions", "coordinator"))
        if kind == "commit":
            return commit_request(self._group, [(TOPIC, 0, self._sent)])
        if kind == "fetch":
            m = schema("offset_fetch", 7)
            topics = (m.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,)),)
            return m.OffsetFetchRequest(group_id=self._group, topics=topics, require_stable=False)
        if kind == "versions":
            return entity("api_versions", 2)()
        return entity("find_coordinator", 2)(key=self._group, key_type=0)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            end = 4 + struct.unpack_from(">i", self._data)[0]
            if len(self._data) < end:
                return
            frame, self._data = self._data[4:end], self._data[end:]
            self._take(frame)
        if not self._asked and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _take(self, frame: bytes) -> None:
        (came,) = struct.unpack_from(">i", frame)
        if not self._asked or came != self._asked[0][0]:
            raise Violation(f"{self._client.name} gets answer {came}, it waits for {list(self._asked)[:1]}")
        _, request, offset = self._asked.popleft()
        name = type(request).__name__
        if name == "OffsetCommitRequest":
            answer = _decoded("offset_commit", 7, frame)
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                self._acknowledged = offset
        elif name == "OffsetFetchRequest":
            answer = _decoded("offset_fetch", 7, frame)
            found = answer.topics[0].partitions[0] if answer.topics else None
            if answer.error_code != ErrorCode.NONE or found is None or found.error_code != ErrorCode.NONE:
                return
            if not self._acknowledged <= max(found.committed_offset, 0) < offset:
                found, was = found.committed_offset, self._acknowledged
                raise Violation(f"{self._group} shows {found} in answer {offset}, {was} was acknowledged")
            self._client.answered += 1


def _decoded(api: str, version: int, frame: bytes) -> Any:
    response = entity(api, version, "response")
    _, size = entity_reader(response.__header_schema__)(frame, 0)
    answer, read = entity_reader(response)(frame, size)
    if size + read != len(frame):
        raise Violation(f"{len(frame) - size - read} bytes behind {answer}")
    return answer
