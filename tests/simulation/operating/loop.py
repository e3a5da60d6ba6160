"""An event loop whose process has connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.loop import At, SimulatedLoop
from tests.simulation.operating.process import Process
from tests.simulation.operating.wire import Wire

__all__ = ["WiredLoop"]

P = TypeVar("P", bound=asyncio.Protocol)


class WiredLoop(SimulatedLoop):
    """`address`: of the machine; whatever address a server asks for, it listens there."""

    def __init__(
        self,
        at: At,
        time_s: Callable[[], float],
        thread_delay_s: Callable[[], float],
        failed: Callable[[dict[str, Any]], None],
        wire: Wire,
        process: Process,
        address: str,
    ) -> None:
        super().__init__(at, time_s, thread_delay_s, failed)
        self._wire = wire
        self._process = process
        self._address = address

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
    ) -> _Server:
        address = f"{self._address}:{port}"
        self._wire.listen(self._process, address, factory)
        return _Server(self._address, port, lambda: self._wire.unlisten(self._process, address))

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], P], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, P]:
        return await self._wire.connect(self._process, f"{host}:{port}", factory)


class _Server(asyncio.AbstractServer):
    """Also the one socket that it has."""

    def __init__(self, host: str, port: int, close: Callable[[], None]) -> None:
        self._name = host, port
        self._close = close

    @property
    def sockets(self) -> tuple[_Server, ...]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def close(self) -> None:
        self._close()

    async def wait_closed(self) -> None:
        pass
