"""A way to a broker on which answers to Fetch take longer: a client that follows a topic through it is behind."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

FETCH = 1


class SlowFetches:
    """`port`: where it listens, given by the caller, since the broker advertises it. `delay_s`: of each answer; it may
    change. A broker that is down is a connection that ends."""

    def __init__(self, port: int, delay_s: float, broker_port: int = 0) -> None:
        self.port = port
        self.broker_port = broker_port
        self.delay_s = delay_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to_broker = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            writer.close()
            return
        asked: deque[int] = deque()
        for pump in (self._requests(reader, to_broker, asked), self._answers(there, writer, asked)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[int]) -> None:
        try:
            while True:
                frame = await _frame(reader)
                asked.append(int.from_bytes(frame[4:6], "big"))
                writer.write(frame)
        except (OSError, EOFError):
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[int]) -> None:
        try:
            while True:
                frame = await _frame(reader)
                if asked.popleft() == FETCH:
                    await asyncio.sleep(self.delay_s)
                writer.write(frame)
        except (OSError, EOFError):
            writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))
