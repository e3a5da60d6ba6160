"""Transactional producers of Kafka's own library, in one JVM that a test drives."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.kafka_broker import java

CALL_S = 90.0
SOURCE = Path(__file__).with_name("TransactionalClient.java")


class JavaError(Exception):
    """An exception that the library has thrown: class, class of its cause, message."""


class JavaProducers:
    """`groups`: the group whose offsets they commit. Each producer has a name for the test beside its transactional
    id."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._arguments = (str(SOURCE), bootstrap, group)

    async def __aenter__(self) -> JavaProducers:
        self._jvm = await asyncio.create_subprocess_exec(
            *java(*self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await self._answer()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._jvm.kill()
        await self._jvm.wait()

    async def open(self, name: str, transactional_id: str = "tx", timeout_ms: int = 60_000) -> None:
        """A producer that is initialised."""
        await self.call("open", name, transactional_id, timeout_ms)
        await self.call("init", name)

    async def call(self, word: str, name: str, *more: object) -> str:
        """Raises JavaError."""
        line = " ".join(map(str, (word, name, *more)))
        assert self._jvm.stdin is not None
        self._jvm.stdin.write(f"{line}\n".encode())
        return await self._answer()

    async def committed(self) -> int | None:
        """Waits for transactions that are about to end (KIP-447)."""
        found = await self.call("committed", "-")
        return None if found == "none" else int(found)

    async def _answer(self) -> str:
        assert self._jvm.stdout is not None
        async with asyncio.timeout(CALL_S):
            while True:
                line = (await self._jvm.stdout.readline()).decode()
                kind, _, value = line.strip().partition(" ")
                if kind == "ok":
                    return value
                if kind == "error":
                    raise JavaError(value)
                assert line, "the JVM has ended"
