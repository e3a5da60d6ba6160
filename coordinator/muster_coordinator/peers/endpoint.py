"""The sockets of the peer network. Mutual TLS would be the `ssl` argument of these two calls, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_P = TypeVar("_P", bound=asyncio.Protocol)


async def listen(factory: Callable[[], asyncio.Protocol], host: str, port: int) -> tuple[asyncio.Server, int]:
    """The server, and the port that it has. Raises OSError when the address cannot be had."""
    server = await asyncio.get_running_loop().create_server(factory, host, port, ssl=None)
    return server, int(server.sockets[0].getsockname()[1])


async def connect(factory: Callable[[], _P], host: str, port: int, timeout_s: float) -> _P:
    """Raises OSError (TimeoutError included)."""
    async with asyncio.timeout(timeout_s):
        _, protocol = await asyncio.get_running_loop().create_connection(factory, host, port, ssl=None)
    return protocol
