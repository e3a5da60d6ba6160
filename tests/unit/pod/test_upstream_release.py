"""The release that the brokers of an upstream announce together."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable

import pytest

from muster_coordinator.groups.consumer.config import KafkaVersion
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.outgoing.settings import OutgoingSettings
from muster_coordinator.pod.mirroring.connection import NEEDED, UpstreamConnection
from muster_coordinator.pod.mirroring.release import UpstreamRelease
from muster_coordinator.wire.served import KAFKA_4_3, KAFKA_4_4, NEW_IN_4_4, ServedApis

TIMEOUT_S = 30.0
OLD, NEW = KafkaVersion.KAFKA_4_3, KafkaVersion.KAFKA_4_4


def ranges(served: ServedApis) -> dict[int, int]:
    return {api.key: version for api, version in NEEDED} | {api.key: api.max_version for api in served.all}


class Broker:
    """Answers ApiVersions alone; with None it closes the connection."""

    def __init__(self, serves: dict[int, int] | None) -> None:
        self.serves = serves
        self.connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> tuple[str, int]:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._listening.sockets[0].getsockname()[:2]
        return host, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while self.serves is not None:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                _, _, number = struct.unpack_from(">hhi", await reader.readexactly(length))
                served = [struct.pack(">hhh", key, 0, version) for key, version in self.serves.items()]
                body = struct.pack(">hi", 0, len(served)) + b"".join(served)
                writer.write(struct.pack(">ii", len(body) + 4, number) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    def restart(self, serves: dict[int, int] | None) -> None:
        self.serves = serves
        for writer in self.connections:
            writer.close()
        self.connections.clear()

    def stop(self) -> None:
        self._listening.close()


class Upstream:
    """Implements `Brokers`: connections to these."""

    def __init__(self, served: Iterable[dict[int, int] | None]) -> None:
        self.all = [Broker(each) for each in served]
        self._connections: list[UpstreamConnection] = []

    async def __aenter__(self) -> Upstream:
        connector = Connector(OutgoingSettings(), "test")
        for broker in self.all:
            self._connections.append(UpstreamConnection(connector, *await broker.start(), TIMEOUT_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        for broker in self.all:
            broker.stop()

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(range(len(self.all)))

    def for_ends(self, node_id: int) -> UpstreamConnection | None:
        return self._connections[node_id]


V4_3, V4_4 = ranges(KAFKA_4_3), ranges(KAFKA_4_4)
V4_5 = {key: version + 1 for key, version in V4_4.items()}


@pytest.mark.parametrize(
    ("served", "release", "known"),
    [
        ([V4_3], OLD, True),
        ([V4_4], NEW, True),
        ([V4_5], NEW, True),
        ([V4_4, V4_3, V4_4], OLD, True),
        ([V4_4, None], OLD, False),
        ([], OLD, False),
        *[([{**V4_4, api.key: api.max_version - 1}], OLD, True) for api in NEW_IN_4_4],
        *[([{key: version for key, version in V4_4.items() if key != api.key}], OLD, True) for api in NEW_IN_4_4],
    ],
)
async def test_release_is_the_lowest_that_brokers_announce(
    served: list[dict[int, int] | None], release: KafkaVersion, known: bool
) -> None:
    async with Upstream(served) as upstream:
        subject = UpstreamRelease()
        assert await subject.look(upstream) is known
        assert subject.version is release


async def test_rolling_upgrade_ends_with_the_last_broker_and_a_way_back_begins_with_the_first() -> None:
    async with Upstream([V4_3, V4_3]) as upstream:
        subject = UpstreamRelease()
        seen = []
        for broker, serves in ((0, None), (0, V4_4), (1, None), (1, V4_4), (0, None), (0, V4_3), (1, None), (1, V4_3)):
            upstream.all[broker].restart(serves)
            await subject.look(upstream)
            seen.append(subject.version)
        assert seen == [OLD, OLD, OLD, NEW, NEW, OLD, OLD, OLD]


async def test_follower_learns_of_a_change_by_itself() -> None:
    async with Upstream([V4_3]) as upstream:
        subject = UpstreamRelease()
        following = asyncio.get_running_loop().create_task(subject.follow(upstream, 0.0001))
        upstream.all[0].restart(V4_4)
        async with asyncio.timeout(TIMEOUT_S):
            while subject.version is OLD:
                await asyncio.sleep(0.005)
        following.cancel()
