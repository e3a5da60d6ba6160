"""franz-go, a Kafka client for Go, over SASL_SSL (`franz/main.go`): compiled once, and a process of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.go_programs import compiled

ANSWER_S = 90.0


def program() -> str | None:
    """The compiled client; None: there is no Go here, or its modules cannot be had."""
    return compiled(Path(__file__).parent / "franz")


class Franz:
    """A running client."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def said(self) -> str:
        """Its next line; "" at the end."""
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            return (await self._process.stdout.readline()).decode().strip()

    async def commit(self) -> str:
        """One more offset; `committed 1`, or `refused` and why."""
        self.tell("")
        return await self.said()


@asynccontextmanager
async def franz(**asked: Any) -> AsyncIterator[Franz]:
    """`asked`: the fields of main.go's `asked`."""
    found = await asyncio.to_thread(program)
    assert found is not None
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(found, stdin=pipe, stdout=pipe)
    client = Franz(process)
    client.tell(json.dumps({"Seconds": int(ANSWER_S), **asked}))
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
