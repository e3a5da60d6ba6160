"""Bytes that are no requests, requests that nobody serves, and lengths that are not true."""

from __future__ import annotations

import random

from tests.attacks.bodies import array, request, string
from tests.attacks.site import Site, framed, header
from tests.fuzz.requests import Requests

CONNECTIONS = 32
FLEXIBLE_LIST = framed(b"\0\x10\0\x04\0\0\0\1\0\1x\0" + b"\xff\xff\xff\xff\x0f")


async def _said(site: Site, data: bytes) -> None:
    async def one(_: int) -> None:
        await site.pour_and_read(await site.client(), data)

    await site.at_once(CONNECTIONS, one)


async def garbage(site: Site) -> None:
    await _said(site, random.Random(1).randbytes(1 << 16))


async def zeros(site: Site) -> None:
    """Frames without a byte, one after the other."""
    await _said(site, bytes(1 << 16))


async def web_requests(site: Site) -> None:
    await _said(site, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)


async def negative_lengths(site: Site) -> None:
    await _said(site, b"\xff" * 64)


async def huge_lengths(site: Site) -> None:
    await _said(site, b"\x7f\xff\xff\xff" + header(8, 7) + bytes(1 << 16))


async def unknown_apis(site: Site) -> None:
    await _said(site, framed(header(999, 0)))


async def wrong_versions(site: Site) -> None:
    await _said(site, framed(header(8, 99)))


async def huge_counts(site: Site) -> None:
    """An array that claims two billion elements."""
    await _said(site, request(15, 0, array([string("g")], 0x7FFFFFFF)))


async def huge_compact_counts(site: Site) -> None:
    await _said(site, FLEXIBLE_LIST)


async def mutated(site: Site) -> None:
    """Requests of all kinds, half of them with bytes that are wrong."""

    async def one(number: int) -> None:
        requests = Requests(random.Random(number))
        client = await site.client()
        await site.pour_and_read(client, b"".join(requests.frame(each, 0.5).data for each in range(100)))

    await site.at_once(CONNECTIONS, one)
