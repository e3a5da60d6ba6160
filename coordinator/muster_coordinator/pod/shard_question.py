"""Asks a shard of this pod, outside of a client's request."""

from __future__ import annotations

import asyncio
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.shard.shard import Shard


class ShardRefusedError(Exception):
    """The shard refuses the request, with `code`: its leadership ends, or it does not serve."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


async def ask_shard(shard: Shard, request: Any) -> Any:
    """The response of its state machine, when what it depends on is committed. Raises ShardRefusedError."""
    waiting = _Waiting()
    shard.submit(request, waiting)
    return await waiting.done


class _Waiting:
    """Implements `shard.ports.Answer`."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, response: Any) -> None:
        if not self.done.done():  # else nobody waits any more: this pod stops
            self.done.set_result(response)

    def refuse(self, code: ErrorCode) -> None:
        if not self.done.done():
            self.done.set_exception(ShardRefusedError(code))
