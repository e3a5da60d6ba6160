"""Clients that read slowly or not at all, write slowly, or stop in the middle of a request."""

from __future__ import annotations

import asyncio
import socket

from tests.attacks.bodies import BIG, commit
from tests.attacks.site import Site, frame, stop_reading

PIPELINED = 100
PAUSE_S = 0.1


def everything_of_big(site: Site) -> bytes:
    return frame("offset_fetch", 7, group_id=site.group(BIG), topics=None)


async def no_readers(site: Site) -> None:
    async def one(_: int) -> None:
        client = await site.client()
        stop_reading(client)
        await site.pour(client, everything_of_big(site) * PIPELINED)

    await site.at_once(16, one)


async def slow_readers(site: Site) -> None:
    async def one(_: int) -> None:
        client = await site.client()
        pouring = asyncio.create_task(site.pour(client, everything_of_big(site) * PIPELINED))
        try:
            while data := await client.reader.read(1024):
                site.counts["bytes read"] += len(data)
                await asyncio.sleep(PAUSE_S)
        finally:
            pouring.cancel()
            await asyncio.gather(pouring, return_exceptions=True)

    await site.at_once(64, one)


async def narrow_windows(site: Site) -> None:
    """A receive buffer of 2 KiB: each answer leaves in many small pieces."""

    async def one(_: int) -> None:
        client = await site.client()
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        await site.pour_and_read(client, everything_of_big(site) * PIPELINED)

    await site.at_once(16, one)


async def slow_writers(site: Site) -> None:
    """Each sends a whole commit, a byte at a time, and the next one then."""
    data = commit(site.group("slow"))

    async def one(number: int) -> None:
        client = await site.client()
        await asyncio.sleep(PAUSE_S * number / 500)
        while True:
            for position in range(len(data)):
                await site.send(client, data[position : position + 1])
                await asyncio.sleep(PAUSE_S)

    await site.at_once(500, one)


async def bytes_one_by_one(site: Site) -> None:
    """As fast as they go, each in a packet of its own."""
    data = commit(site.group("slow"))

    async def one(_: int) -> None:
        client = await site.client()
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            for position in range(len(data)):
                await site.send(client, data[position : position + 1])
                await asyncio.sleep(0)

    await site.at_once(64, one)


async def _stop_after(site: Site, data: bytes, many: int) -> None:
    async def one(_: int) -> None:
        client = await site.client()
        await site.send(client, data)
        await site.hold(client)

    await site.at_once(many, one)


async def half_lengths(site: Site) -> None:
    await _stop_after(site, b"\0\0", 2000)


async def half_frames(site: Site) -> None:
    data = commit(site.group("half"))
    await _stop_after(site, data[: len(data) // 2], 2000)


async def half_frames_of_the_largest_size(site: Site) -> None:
    """All but the last byte of 4 MiB, 128 times: 512 MiB, if it were kept."""
    await _stop_after(site, (4 << 20).to_bytes(4, "big") + b"\0\x08\0\x07" + bytes((4 << 20) - 5), 128)
