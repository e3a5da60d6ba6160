"""Servers of a test: a broker or pod that answers as it is told to, and a gateway in this process."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.gateway import frames

from muster_gateway import apis
from muster_gateway.gateway import Gateway
from muster_gateway.settings import parse_settings
from muster_gateway.slots import framed

Answer = bytes | None
Answering = Callable[[int, int, int, bytes], Awaitable[Answer]]
"""(key, version, correlation id, frame) -> bytes to send, as they are; None: close the connection."""


class Server:
    """Listens on entering. `answering` is asked for all but what the gateway itself asks: ApiVersions, and Metadata
    without topics."""

    def __init__(self, node_id: int = 0, answering: Answering | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.node_id = node_id
        self.tls = tls
        self.answering = answering
        self.requests: list[tuple[int, int]] = []
        """(key, correlation id) of what was asked."""
        self.api_versions: list[int] = []
        """Versions of ApiVersions that were asked for."""
        self.api_versions_max = 4
        self.hangs = False
        """It takes connections and answers nothing."""
        self.accepted = 0
        self.port = 0
        self.connections: set[asyncio.StreamWriter] = set()
        self.leader = node_id  # whom FindCoordinator names
        self.peers: list[Server] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for writer in tuple(self.connections):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        self.accepted += 1
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                if self.hangs:
                    continue
                answer = await self._answer(frame)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytes) -> Answer:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if key == apis.API_VERSIONS:
            self.api_versions.append(version)
            error = 0 if version <= self.api_versions_max else 35
            version = version if not error else 0
            keys = [{"api_key": k, "min_version": 0, "max_version": r.max_version} for k, r in apis.RULES.items()]
            answer = frames.answer(key, version, {"error_code": error, "api_keys": keys}, correlation_id)
            return framed(answer)
        if key == apis.METADATA and version == 4:
            brokers = [
                {"node_id": each.node_id, "host": "127.0.0.1", "port": each.port, "rack": None}
                for each in (self, *self.peers)
            ]
            description = {"brokers": brokers, "cluster_id": "c", "controller_id": 0, "topics": ()}
            return framed(frames.answer(key, version, description, correlation_id))
        if key == apis.FIND_COORDINATOR and version == 2:
            node: dict[str, Any] = {"node_id": self.leader, "host": "127.0.0.1", "port": 1}
            node |= {"error_code": 0, "error_message": None}
            return framed(frames.answer(key, version, node, correlation_id))
        self.requests.append((key, correlation_id))
        assert self.answering is not None
        return await self.answering(key, version, correlation_id, frame)


@asynccontextmanager
async def gateway(broker: Server, pod: Server | None = None, **settings: str) -> Any:
    """(gateway, port for clients). The settings' names have `_` for `.`."""
    values = {
        "upstream.bootstrap.servers": f"127.0.0.1:{broker.port}",
        "listen.host": "127.0.0.1",
        "bootstrap.port": "0",
        "broker.port.base": "0",
        "pod.port.base": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    if pod is not None:
        values |= {"muster.bootstrap.servers": f"127.0.0.1:{pod.port}", "muster.groups": "m-"}
    under_test = Gateway(parse_settings(values))
    _, port = await under_test.start()
    running = asyncio.create_task(under_test.run())
    await under_test.upstream.known()
    try:
        yield under_test, port
    finally:
        running.cancel()
        await under_test.stop()


class Client:
    """A raw client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    def send(self, key: int, version: int, correlation_id: int, body: bytes = b"") -> None:
        """A request with a header without client id and tagged fields."""
        self.writer.write(framed(struct.pack(">hhih", key, version, correlation_id, -1) + body))

    async def receive(self) -> bytes:
        """The next answer without its length; b"" when the connection ended."""
        try:
            async with asyncio.timeout(20):
                (length,) = struct.unpack(">i", await self.reader.readexactly(4))
                return await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def close(self) -> None:
        self.writer.transport.abort()


def plain(correlation_id: int, body: bytes = b"") -> bytes:
    """An answer with its length."""
    return framed(struct.pack(">i", correlation_id) + body)
