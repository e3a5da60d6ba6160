"""Connections without end: idle ones, ones that go at once, handshakes and logins, whole and half."""

from __future__ import annotations

import socket
import ssl
import struct

from tests.attacks.bodies import commit
from tests.attacks.site import STRANGER, Site, drop, frame
from tests.support.certificates import unchecked_context
from tests.support.scram import client_first, log_in

AT_ONCE = 64


async def idle(site: Site) -> None:
    async def one(_: int) -> None:
        await site.hold(await site.raw())

    await site.at_once(5000, one)


async def come_and_go(site: Site) -> None:
    async def one(_: int) -> None:
        while True:
            drop(await site.raw())

    await site.at_once(AT_ONCE, one)


async def reset_after_a_request(site: Site) -> None:
    """Each asks for something, and resets the connection before it is answered."""
    data = commit(site.group("reset")) * 20

    async def one(_: int) -> None:
        while True:
            client = await site.client()
            await site.send(client, data)
            linger = struct.pack("ii", 1, 0)
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            drop(client)

    await site.at_once(AT_ONCE, one)


async def one_request_each(site: Site) -> None:
    """A new connection for each request, as programs do that are called once."""
    data = frame("api_versions", 0)

    async def one(_: int) -> None:
        while True:
            client = await site.client()
            await site.send(client, data)
            await client.reader.readexactly(4)
            drop(client)

    await site.at_once(AT_ONCE, one)


def hello() -> bytes:
    """The first flight of a TLS handshake."""
    sent = ssl.MemoryBIO()
    session = unchecked_context(None).wrap_bio(ssl.MemoryBIO(), sent)
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


async def _say_and_hold(site: Site, data: bytes, many: int) -> None:
    async def one(_: int) -> None:
        client = await site.raw()
        await site.send(client, data)
        await site.hold(client)

    await site.at_once(many, one)


async def half_handshakes(site: Site) -> None:
    data = hello()
    await _say_and_hold(site, data[: len(data) // 2], 1000)


async def handshakes_without_an_end(site: Site) -> None:
    """The server has made its keys and signed; the client says nothing more."""
    await _say_and_hold(site, hello(), 1000)


async def entrances(site: Site) -> None:
    """Whole handshakes, and logins where they are asked for; then the client goes."""

    async def one(_: int) -> None:
        while True:
            drop(await site.client())

    await site.at_once(AT_ONCE, one)


async def no_handshakes(site: Site) -> None:
    """Requests without TLS to a port that has it."""
    data = frame("api_versions", 0)

    async def one(_: int) -> None:
        client = await site.raw()
        await site.send(client, data)
        await site.hold(client)

    await site.at_once(AT_ONCE, one)


async def half_logins(site: Site) -> None:
    first = frame("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
    await _say_and_hold(site, first + frame("sasl_authenticate", 1, auth_bytes=client_first(STRANGER, "nonce")), 1000)


async def logins_of_the_largest_size(site: Site) -> None:
    """Half of a SaslAuthenticate of 512 KiB."""
    first = frame("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
    await _say_and_hold(site, first + (512 << 10).to_bytes(4, "big") + b"\0\x24\0\x01" + bytes(256 << 10), 400)


async def _guess(site: Site, mechanism: str, user: str) -> None:
    async def one(number: int) -> None:
        client = await site.shaken()
        try:
            while True:
                site.counts["logins"] += 1
                answer = await log_in(client, user or f"user-{number}", "wrong", mechanism)
                if answer.error_code:
                    return
        finally:
            drop(client)

    async def always(number: int) -> None:
        while True:
            await one(number)

    await site.at_once(AT_ONCE, always)


async def wrong_passwords(site: Site) -> None:
    await _guess(site, "SCRAM-SHA-256", STRANGER)


async def wrong_passwords_by_plain(site: Site) -> None:
    await _guess(site, "PLAIN", STRANGER)


async def unknown_users(site: Site) -> None:
    await _guess(site, "PLAIN", "")


async def requests_before_the_login(site: Site) -> None:
    data = frame("api_versions", 0) * 1000

    async def one(_: int) -> None:
        await site.pour_and_read(await site.shaken(), data)

    await site.at_once(AT_ONCE, one)
