"""TLS of a port: who is let in, how certificates and CAs change under open connections, and what is bounded."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("cryptography")

from tests.support.certificates import CLUSTER, HOUR, Authority, operator, pod, reader, unchecked_context
from tests.support.peers import until

from muster_coordinator.security.handshakes import HandshakeLimits, PortListener
from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import Tls, TlsError, TlsFiles, client_context, server_context


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


def tls_of(files: TlsFiles, *roles: Role) -> Tls:
    return Tls(files, partial(server_context, check=only(CLUSTER, roles)))


@asynccontextmanager
async def serving(tls: Tls, handshakes_max: int = 100) -> AsyncIterator[tuple[PortListener, int]]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    listener = PortListener(Echo, [listening], tls, "test", HandshakeLimits(number=handshakes_max))
    try:
        yield listener, listener.port
    finally:
        listener.close()


async def echoed(port: int, context: ssl.SSLContext, name: str = "muster-0") -> bool:
    """Whether a client with this context gets its bytes back. In TLS 1.3 it learns of a refusal when it reads."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    except (OSError, ssl.SSLError):
        return False
    try:
        writer.write(b"hello")
        return await reader.readexactly(5) == b"hello"
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.transport.abort()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server_tls(authority: Authority) -> Tls:
    return tls_of(authority.write("server", pod()), Role.OPERATOR)


async def test_a_member_with_the_right_role_gets_in(authority: Authority, server_tls: Tls) -> None:
    client = client_context(authority.write("client", operator()), check=only(CLUSTER, [Role.POD]))
    async with serving(server_tls) as (server, port):
        assert await echoed(port, client)
    assert not server.refused


async def test_bytes_that_come_with_the_end_of_the_handshake_are_not_lost(
    authority: Authority, server_tls: Tls
) -> None:
    client = client_context(authority.write("client", operator()), check=only(CLUSTER, [Role.POD]))
    async with serving(server_tls) as (_, port):
        for _ in range(20):
            assert await echoed(port, client)


async def test_a_client_refuses_another_pod_than_it_has_dialled(authority: Authority, server_tls: Tls) -> None:
    client = client_context(authority.write("client", operator()), check=only(CLUSTER, [Role.POD]))
    async with serving(server_tls) as (_, port):
        assert not await echoed(port, client, "muster-1")


async def test_a_reader_cannot_pose_as_a_pod(authority: Authority) -> None:
    posing = tls_of(authority.write("server", reader()), Role.OPERATOR)
    client = client_context(authority.write("client", operator()), check=only(CLUSTER, [Role.POD]))
    async with serving(posing) as (_, port):
        assert not await echoed(port, client)


async def test_a_new_leaf_and_a_new_authority_come_without_a_new_listener(tmp_path: Path, authority: Authority) -> None:
    tls = tls_of(authority.write("server", pod()), Role.OPERATOR)
    old_client = unchecked_context(authority.write("old", operator()))
    successor = Authority(tmp_path)
    new_client = unchecked_context(successor.write("new", operator()))
    async with serving(tls) as (_, port):
        before, writer = await asyncio.open_connection("127.0.0.1", port, ssl=old_client, server_hostname="muster-0")
        assert not await echoed(port, new_client)
        both = authority.issued.certificate + successor.issued.certificate
        authority.write("server", pod(), trusted=both)
        assert tls.look()
        assert await echoed(port, old_client)
        assert await echoed(port, new_client)
        successor.write("server", pod())
        assert tls.look()
        assert not await echoed(port, old_client)
        assert await echoed(port, new_client)
        writer.write(b"still")
        assert await before.readexactly(5) == b"still"
        writer.transport.abort()


async def test_files_in_the_middle_of_an_exchange_leave_the_old_ones_in_force(authority: Authority) -> None:
    files = authority.write("server", pod())
    tls = tls_of(files, Role.OPERATOR)
    client = unchecked_context(authority.write("client", operator()))
    files.key.write_bytes(authority.write("other", pod()).key.read_bytes())
    assert not tls.look()
    assert not tls.look()
    async with serving(tls) as (_, port):
        assert await echoed(port, client)
    authority.write("server", pod())
    assert tls.look()


def test_a_file_that_is_missing_is_named(authority: Authority) -> None:
    files = authority.write("server", pod())
    files.key.unlink()
    with pytest.raises(TlsError, match=r"server/tls\.key: No such file"):
        tls_of(files, Role.OPERATOR)


async def test_of_too_many_handshakes_the_oldest_ends(authority: Authority, server_tls: Tls) -> None:
    client = unchecked_context(authority.write("client", operator()))
    async with serving(server_tls, handshakes_max=20) as (server, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        await until(lambda: server.refused["too_many"] == 80)
        assert server.handshakes == 20
        assert await echoed(port, client)
        for _, writer in idle:
            writer.transport.abort()
        await until(lambda: server.handshakes == 0)


async def test_an_expired_certificate_is_refused(authority: Authority, server_tls: Tls) -> None:
    expired = unchecked_context(authority.write("client", operator(), lifetime=-HOUR / 60))
    async with serving(server_tls) as (server, port):
        assert not await echoed(port, expired)
        await until(lambda: server.refused["certificate"] == 1)


def _blocking_echo(port: int, context: ssl.SSLContext, name: str) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        secured.sendall(b"hello")
        return secured.recv(5)


async def test_blocking_clients_check_the_certificate_too(authority: Authority, server_tls: Tls) -> None:
    client = client_context(authority.write("client", operator()), check=only(CLUSTER, [Role.POD]))
    async with serving(server_tls) as (_, port):
        assert await asyncio.to_thread(_blocking_echo, port, client, "muster-0") == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError, match="answers where pod muster-1 was called"):
            await asyncio.to_thread(_blocking_echo, port, client, "muster-1")
