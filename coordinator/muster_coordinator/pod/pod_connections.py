"""Connections to the Kafka listeners of other pods, for what coordinators ask of one another."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from muster_coordinator.podapi.image import Broker
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_request_frame

CLIENT_ID = "muster-coordinator"
WAITING_MAX = 10_000
"""Requests to one pod that wait for their answers; one more is refused."""
_ANSWER_MAX_BYTES = 1 << 20

_T = TypeVar("_T")


class PodUnreachableError(Exception):
    """The other pod gave no answer, and the connection is closed: it may have carried out the request or not."""


class PodConnections:
    """One connection to each pod that is asked; requests are pipelined, and answered in their order."""

    def __init__(self, answer_timeout_s: float) -> None:
        """`answer_timeout_s`: a pod that gives no answer for so long loses its connection."""
        self._answer_timeout_s = answer_timeout_s
        self._connections: dict[tuple[str, int], _Connection] = {}

    async def ask(self, pod: Broker, api: Api, version: int, body: bytes, decode: Callable[[Reader], _T]) -> _T:
        """Returns the decoded answer. Raises PodUnreachableError."""
        address = (pod.host, pod.port)
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Connection(*address)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                frame = await connection.ask(api, version, body)
                reader = Reader(frame, 4, api.flexible(version))
                reader.tagged_fields()  # of the header
                return decode(reader)
        except (OSError, EOFError, TimeoutError, WireError, IndexError, struct.error) as error:
            connection.close(f"no answer of {pod.pod}: {error or type(error).__name__}")
            raise PodUnreachableError(f"{pod.pod} at {pod.host}:{pod.port}: {error or type(error).__name__}") from error

    def stop(self) -> None:
        for connection in self._connections.values():
            connection.close("this pod ends")


class _Connection:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._opening = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._correlation_id = 0

    async def ask(self, api: Api, version: int, body: bytes) -> bytes:
        """Returns the frame of the answer. Raises OSError, EOFError, WireError; a caller that gives up closes the
        connection."""
        async with self._opening:
            if self._writer is None:
                reader, self._writer = await asyncio.open_connection(self._host, self._port)
                self._reading = asyncio.create_task(self._read(reader))
        if len(self._waiting) >= WAITING_MAX:
            raise ConnectionError(f"{WAITING_MAX} requests wait for their answers")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        self._writer.write(encode_request_frame(api, version, self._correlation_id, CLIENT_ID, body))
        return await answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        reason = "the other pod closed the connection"
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big", signed=True)
                if not 4 <= length <= _ANSWER_MAX_BYTES or not self._waiting:
                    reason = f"an answer of {length} bytes that nobody waits for, or cannot be one"
                    return
                frame = await reader.readexactly(length)
                answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(frame)
        except (OSError, EOFError) as error:
            reason = str(error) or reason
        finally:
            self._reading = None
            self.close(reason)

    def close(self, reason: str) -> None:
        """No request is on its way any more, as far as this pod can tell."""
        writer, self._writer = self._writer, None
        reading, self._reading = self._reading, None
        waiting: deque[asyncio.Future[Any]] = self._waiting
        self._waiting = deque()
        if writer is not None:
            writer.close()
        if reading is not None:
            reading.cancel()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionError(reason))
