#!/usr/bin/env python3
"""A process that does nothing but pass bytes on: what nothing between client and broker can stay below on this event
loop.

usage: relay.py PORT TARGET_PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import servers
import uvloop

from muster_cli.local.ports import free_ports

HOST = "127.0.0.1"


class End(asyncio.Protocol):
    """One of the two connections: what it gets goes to the other one, no faster than that takes it."""

    transport: asyncio.Transport
    other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.write(data)

    def pause_writing(self) -> None:
        assert self.other is not None
        self.other.pause_reading()

    def resume_writing(self) -> None:
        assert self.other is not None
        self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


class Front(End):
    """A client's; it is read when the one to the broker is there."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._connect(self.transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        try:
            _, back = await asyncio.get_running_loop().create_connection(End, HOST, self._target)
        except OSError:
            transport.close()
            return
        self.other, back.other = back.transport, transport
        transport.resume_reading()


async def serve(port: int, target: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Front(target), HOST, port)
    print("relaying", flush=True)
    await server.serve_forever()


@dataclass(frozen=True)
class Relayed:
    """A second plain listener of a broker, which tells clients that it is at the relay's port."""

    relay_port: int

    def of_kafka(self, listeners: str, port: int) -> str:
        """Properties that come after those of a plain broker, whose `listeners` stay."""
        plain = listeners.split(",")[0]
        return (
            f"listeners={listeners},RELAYED://{HOST}:{port}\n"
            f"advertised.listeners={plain},RELAYED://{HOST}:{self.relay_port}\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT\n"
        )


@contextmanager
def relayed_kafka(directory: Path, *, partitions: int, topic_partitions: int) -> Iterator[tuple[str, str, int]]:
    """A broker: its address, that of a relay before it, and the relay's process id. Raises BenchError."""
    (port,) = free_ports(1)
    cluster = servers.KafkaCluster(directory, partitions=partitions, further=Relayed(port))
    target = cluster.further_bootstrap.rpartition(":")[2]
    output = directory / "relay.out"
    with (
        cluster.running() as (broker,),
        servers.process([sys.executable, str(Path(__file__).resolve()), str(port), target], output) as relay,
    ):
        servers.wait_for_kafka(broker, cluster.bootstrap, topic_partitions, cluster.output)
        servers.wait_for_line(relay, output, "relaying")
        yield cluster.bootstrap, f"{HOST}:{port}", relay.pid


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
