"""Connections to servers that answer a login wrongly, or never; files of an account."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.outgoing.login import ANSWER_BYTES_MAX, LoginError
from muster_coordinator.outgoing.settings import OutgoingSettings
from muster_coordinator.security.watched_file import SecurityFileError

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DEADLINE_S = 20


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "username").write_text("alice\n")
    (tmp_path / "password").write_text("pencil")
    return tmp_path


def connector(account: Path, mechanism: str = "SCRAM-SHA-512") -> Connector:
    return Connector(OutgoingSettings("SASL_PLAINTEXT", mechanism, str(account)), "test")


@asynccontextmanager
async def server(answering: Answering) -> AsyncIterator[tuple[str, int]]:
    ended: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(writer)
        try:
            await answering(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[:2]
    finally:
        listening.close()


async def request(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next request."""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(length)
    return int(struct.unpack_from(">i", frame, 4)[0])


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


HANDSHAKEN = struct.pack(">hi", 0, 0)


def told(code: int, message: str, token: bytes = b"", lifetime_ms: int = 0) -> bytes:
    text, end = message.encode(), struct.pack(">q", lifetime_ms)
    return struct.pack(">hh", code, len(text)) + text + struct.pack(">i", len(token)) + token + end


async def after_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(framed(await request(reader), HANDSHAKEN))
    writer.write(framed(await request(reader), body))
    await reader.read()


async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def too_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request(reader)
    writer.write(struct.pack(">i", ANSWER_BYTES_MAX + 1))
    await reader.read()


async def another_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(await request(reader) + 1, HANDSHAKEN))
    await reader.read()


async def half_an_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(await request(reader), HANDSHAKEN[:3]))
    await reader.read()


async def two_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    number = await request(reader)
    writer.write(framed(number, HANDSHAKEN) + framed(number, HANDSHAKEN))
    await reader.read()


async def another_mechanism(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = struct.pack(">hih", 33, 1, 6) + b"GSSAPI"
    writer.write(framed(await request(reader), body))
    await reader.read()


async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await after_handshake(reader, writer, told(58, "Authentication failed"))


async def no_challenge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await after_handshake(reader, writer, told(0, "", b"r=mine,s=AAAA,i=4096"))


@pytest.mark.parametrize(
    ("answering", "said"),
    [
        (ends, "ends the connection"),
        (garbage, "allowed"),
        (too_much, "allowed"),
        (another_answer, "another request"),
        (half_an_answer, "no answer to a login"),
        (two_answers, "nobody waits|ends the connection"),
        (another_mechanism, "does not take SCRAM-SHA-512, but GSSAPI"),
        (refuses, "it refuses the login: Authentication failed"),
        (no_challenge, "not of SCRAM"),
    ],
)
async def test_server_that_answers_wrongly_costs_its_connection(account: Path, answering: Answering, said: str) -> None:
    under_test = connector(account)
    async with asyncio.timeout(DEADLINE_S), server(answering) as address:
        with pytest.raises(LoginError, match=said) as caught:
            await under_test.connect(asyncio.Protocol(), address)
    assert "pencil" not in str(caught.value)
    assert under_test.failed == {"login": 1}


async def test_server_that_never_answers_leaves_nothing_behind_when_its_time_is_up(account: Path) -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                pass
        except ConnectionError:
            pass
        ended.set()

    async with asyncio.timeout(DEADLINE_S), server(silent) as address:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connector(account).connect(asyncio.Protocol(), address)
        await ended.wait()


async def test_changed_password_counts_for_the_next_connection(account: Path) -> None:
    tokens: list[bytes] = []

    async def taking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(await request(reader), HANDSHAKEN))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(length)
        tokens.append(frame[-13:])
        writer.write(framed(struct.unpack_from(">i", frame, 4)[0], told(0, "")))
        await reader.read()

    settings = OutgoingSettings("SASL_PLAINTEXT", "PLAIN", str(account))
    under_test = Connector(settings, "test")
    async with asyncio.timeout(DEADLINE_S), server(taking) as address:
        for password in ("pencil", "second"):
            new = account / "new"
            new.write_text(password)
            new.replace(account / "password")
            await under_test.connect(asyncio.Protocol(), address)
    assert tokens == [b"\0alice\0pencil", b"\0alice\0second"]


@pytest.mark.parametrize(("lifetime_ms", "lifetime_s"), [(0, None), (10_000, 8.0)])
async def test_end_of_a_session_is_told_before_it_comes(
    account: Path, lifetime_ms: int, lifetime_s: float | None
) -> None:
    async def taking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await after_handshake(reader, writer, told(0, "", lifetime_ms=lifetime_ms))

    async with asyncio.timeout(DEADLINE_S), server(taking) as address:
        settings = OutgoingSettings("SASL_PLAINTEXT", "PLAIN", str(account))
        _, told_s = await Connector(settings, "test").connect(asyncio.Protocol(), address)
    assert told_s == lifetime_s


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff", b"a\0b"])
def test_file_that_is_no_line_of_text_is_refused_by_name(account: Path, content: bytes) -> None:
    (account / "password").write_bytes(content)
    with pytest.raises(SecurityFileError, match=r"password: it (has to be one line of text|is not UTF-8)"):
        connector(account)


def test_what_does_not_fit_together_is_refused() -> None:
    assert OutgoingSettings().trouble("x.") == ""
    assert "x.sasl.mechanism" in OutgoingSettings("SASL_SSL").trouble("x.")
    assert "x.security.protocol" in OutgoingSettings("SSL", "PLAIN", "/a").trouble("x.")
    assert "x.ssl.truststore.location" in OutgoingSettings(authorities="/ca").trouble("x.")
    assert "sends secrets" in OutgoingSettings("SASL_PLAINTEXT", "PLAIN", "/a").trouble("x.")
    assert OutgoingSettings("SASL_PLAINTEXT", "SCRAM-SHA-256", "/a").trouble("x.") == ""
