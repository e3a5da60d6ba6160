"""What attackers know of whom they attack, and how they connect to it."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from tests.conformance.requests import build
from tests.support.certificates import unchecked_context
from tests.support.kafka import KafkaClient, encode_request
from tests.support.scram import log_in

OWNER, STRANGER, PASSWORD = "alice", "mallory", "pencil"
"""Users of a target that asks for logins: of the members, with all rights, and of the attackers, with none."""
BACKOFF_S = 0.01
"""Between a connection that was refused or closed and the next one in its place."""
CHUNK = 1 << 16


@dataclass(frozen=True)
class Target:
    """A pod or gateway, as both processes beside it are told of it. `data_dir`: of the pod."""

    port: int
    prefix: str = ""
    """Of group ids that Muster has, behind a gateway."""
    tls: bool = False
    logins: bool = False
    api_port: int = 0
    peer_port: int = 0
    pod_pid: int = 0
    data_dir: str = ""

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Target:
        return cls(**json.loads(text))

    def context(self) -> ssl.SSLContext | None:
        return unchecked_context(None) if self.tls else None


class Site:
    """Connections of attackers, and what they have done: `counts` says that an attack did take place."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.counts: Counter[str] = Counter()
        self._context = target.context()

    def group(self, name: str) -> str:
        return self.target.prefix + name

    async def raw(self) -> KafkaClient:
        """A connection of which nothing more was said."""
        return self._counted(await KafkaClient.connect(self.target.port))

    async def shaken(self) -> KafkaClient:
        """A connection without a login, after the handshake if there is TLS."""
        return self._counted(await KafkaClient.connect(self.target.port, tls=self._context))

    def _counted(self, client: KafkaClient) -> KafkaClient:
        self.counts["connections"] += 1
        return client

    async def client(self, user: str = STRANGER) -> KafkaClient:
        """A connection over which requests are answered."""
        client = await self.shaken()
        if self.target.logins:
            answer = await log_in(client, user, PASSWORD)
            if answer.error_code:
                raise ConnectionError(f"login: error code {answer.error_code}")
        return client

    async def at_once(self, many: int, one: Callable[[int], Awaitable[None]]) -> None:
        """Until it is cancelled: `many` attackers beside each other. One whose connection ends begins again."""

        async def again(number: int) -> None:
            while True:
                try:
                    await one(number)
                except (OSError, asyncio.IncompleteReadError):
                    self.counts["ended by the other side"] += 1
                    await asyncio.sleep(BACKOFF_S)

        async with asyncio.TaskGroup() as tasks:
            for number in range(many):
                tasks.create_task(again(number))

    async def send(self, client: KafkaClient, data: bytes) -> None:
        """Returns when most of it is on its way."""
        client.writer.write(data)
        self.counts["bytes sent"] += len(data)
        await client.writer.drain()

    async def read_all(self, client: KafkaClient) -> None:
        """Until the other side ends the connection, which raises ConnectionError."""
        while data := await client.reader.read(CHUNK):
            self.counts["bytes read"] += len(data)
        raise ConnectionError("ended")

    async def pour(self, client: KafkaClient, data: bytes) -> None:
        """The same again and again, as fast as it is taken."""
        while True:
            await self.send(client, data)

    async def pour_and_read(self, client: KafkaClient, data: bytes) -> None:
        """As `pour`, by a client that reads. Raises ConnectionError when the connection ends."""
        reading = asyncio.create_task(self.read_all(client))
        pouring = asyncio.create_task(self.pour(client, data))
        try:
            done, _ = await asyncio.wait((reading, pouring), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (reading, pouring):
                task.cancel()
            await asyncio.gather(reading, pouring, return_exceptions=True)
            drop(client)

    async def hold(self, client: KafkaClient) -> None:
        """Say nothing more, and read nothing but the end."""
        await self.read_all(client)


def drop(client: KafkaClient) -> None:
    """Close it at once, whatever is in its buffers."""
    client.writer.transport.abort()


def stop_reading(client: KafkaClient) -> None:
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it


def frame(api: str, version: int, client_id: str = "attacker", **fields: Any) -> bytes:
    """A request with the given fields; all others are zero, empty or null."""
    return encode_request(build(api, version, fields), 1, client_id)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int) -> bytes:
    """Of a request that is not flexible, with the client id "x"."""
    return struct.pack(">hhih", key, version, 1, 1) + b"x"
