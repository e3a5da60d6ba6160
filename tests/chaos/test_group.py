"""A committing group of the load, and what its connections do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.chaos import group as group_module
from tests.chaos.group import Group


class Directory:
    def __init__(self) -> None:
        self.pods: list[str] = []
        self.lost_count = 0
        self.refusals: list[str] = []

    def pod_index(self, address: str) -> int:
        if address not in self.pods:
            self.pods.append(address)
        return self.pods.index(address)

    def lost(self, group: Group) -> None:
        self.lost_count += 1

    def refused(self, address: str) -> None:
        self.refusals.append(address)


async def test_connection_that_a_dying_pod_takes_and_ends_at_once_leaves_the_group_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end is told before whoever made it goes on: a request sent there would be answered never."""
    directory = Directory()
    group = Group(0, "g", 0.01, directory)

    async def create_connection(protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> object:
        made = protocol()
        made.connection_made(asyncio.Transport())
        made.connection_lost(ConnectionResetError())
        return asyncio.Transport(), made

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    await group.connect("127.0.0.1:1")
    assert group.is_lost
    assert not group.busy
    assert group.history.coordinators == []
    assert directory.refusals == ["127.0.0.1:1"]


async def test_group_that_is_lost_goes_on_where_its_coordinator_is_and_hears_of_the_end() -> None:
    directory = Directory()
    group = Group(0, "g", 0.01, directory)
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        await group.connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert not group.is_lost
        await ended.wait()
        while not group.is_lost:
            await asyncio.sleep(0.001)
    assert directory.lost_count == 1
    group.close()


async def test_commits_wait_for_no_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time until it is answered would be in the gap between two commits."""
    monkeypatch.setattr(group_module, "FETCH_EVERY", 1)
    monkeypatch.setattr(group_module, "fetched", lambda frame: (0, 0))
    group = Group(0, "g", 0.001, Directory())
    api_keys: list[int] = []
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlations: list[bytes] = []

        def answer(request: int) -> None:
            frame = correlations[request] + bytes(10)  # nothing but zeros behind it: no error
            writer.write(len(frame).to_bytes(4, "big") + frame)

        for number in range(3):
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            api_keys.append(int.from_bytes(frame[:2], "big"))
            correlations.append(frame[4:8])
            if number == 0:
                answer(0)
        group.stop()
        answer(1)
        answer(2)
        await writer.drain()
        await seen.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        await group.connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        while group.acknowledged < 2:
            await asyncio.sleep(0.001)
        seen.set()
    assert api_keys == [8, 9, 8]  # OffsetCommit, OffsetFetch, OffsetCommit
    [fetch] = group.history.fetches
    assert (fetch.offset, fetch.last_sent) == (0, 1)
    assert fetch.answered <= group.history.acked[1]
    assert not group.busy
    group.close()
