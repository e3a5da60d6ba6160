"""The gateway with TLS on both sides: nothing is assembled, back-pressure holds, logins that pass are waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, gateway, plain

pytest.importorskip("cryptography")

from tests.support.certificates import Authority, unchecked_context
from tests.support.certificates import pod as member

from muster_coordinator.security.tls import server_context
from muster_gateway import apis

LIST_OFFSETS = 2  # passes
SIZE = 64 << 20


class Files:
    """Certificates, and an account."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.tls = self.authority.write("server", member("server"))
        self.context = server_context(self.tls, clients=unchecked_context(None).verify_mode)
        for name in ("username", "password"):
            (directory / name).write_text("gateway")
        self.settings = {
            "listener_tls_dir": str(self.tls.certificate.parent),
            "upstream_security_protocol": "SSL",
            "upstream_ssl_truststore_location": str(self.tls.authorities),
        }
        self.logins = self.settings | {
            "upstream_security_protocol": "SASL_SSL",
            "upstream_sasl_mechanism": "PLAIN",
            "upstream_sasl_dir": str(directory),
        }


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def unsent(transport: Any) -> int:
    """Bytes that asyncio's TLS and the connection under it hold."""
    return int(transport.get_write_buffer_size() + transport._ssl_protocol._transport.get_write_buffer_size())


async def settled(value: Any) -> int:
    """Of what grows, once it has not grown for a while."""
    before, now = -1, value()
    while now != before:
        before = now
        await asyncio.sleep(0.3)
        now = value()
    return int(now)


async def test_answer_that_a_client_does_not_read_waits_at_the_broker_and_passes_unchanged(files: Files) -> None:
    content = os.urandom(1 << 20) * (SIZE >> 20)

    async def large(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return plain(correlation_id, content)

    async with Server(0, large, files.context) as broker, gateway(broker, **files.settings) as (under_test, port):
        client = await Client.connect(port, unchecked_context(None))
        client.send(LIST_OFFSETS, 1, 1)
        await wait_for(lambda: broker.requests)
        sent = await settled(lambda: SIZE - max(unsent(each.transport) for each in broker.connections))
        assert sent < SIZE // 2  # the kernel's buffers take 20 MiB at most
        (connection,) = under_test._clients
        assert unsent(connection._transport) < 2 << 20
        assert await client.receive() == struct.pack(">i", 1) + content
        client.close()


async def test_request_that_a_broker_does_not_read_waits_at_the_client(files: Files) -> None:
    stuck = asyncio.Event()

    async def never(key: int, version: int, correlation_id: int, frame: bytes) -> None:
        await stuck.wait()

    async with Server(0, never, files.context) as broker, gateway(broker, **files.settings) as (under_test, port):
        client = await Client.connect(port, unchecked_context(None))
        client.send(LIST_OFFSETS, 1, 1)
        await wait_for(lambda: broker.requests)
        client.send(LIST_OFFSETS, 1, 2, bytes(SIZE))
        left = SIZE - await settled(lambda: SIZE - unsent(client.writer.transport))
        assert left > SIZE // 2
        (connection,) = under_test._clients
        assert unsent(connection._broker._transport) < 2 << 20
        stuck.set()
        client.close()


# -- logins that pass --------------------------------------------------------------------------------------------------


class LoginBroker:
    """Answers DescribeCluster as brokers do: to a client that has logged in, or was told to pass without."""

    def __init__(self) -> None:
        self.says = 0
        """Error code for DescribeCluster; -1: it ends the connection."""
        self.asked = 0
        self.lifetime_ms = 0
        self.logins: list[bytes] = []
        self.token_bytes = len(b"gateway\0gateway") - 1
        self.groups = 0
        self.holds = asyncio.Event()
        self.holds.set()

    async def __call__(self, key: int, version: int, correlation_id: int, frame: bytes) -> bytes | None:
        if key == apis.SASL_HANDSHAKE:
            return plain(correlation_id, struct.pack(">hi", 0, 0))
        if key == apis.SASL_AUTHENTICATE:
            self.logins.append(frame[-self.token_bytes :])
            return plain(correlation_id, struct.pack(">hhiq", 0, -1, 0, self.lifetime_ms))
        if key == apis.DESCRIBE_GROUPS:
            self.groups += 1
            return plain(correlation_id, struct.pack(">i", 0))
        if key != apis.DESCRIBE_CLUSTER:
            return plain(correlation_id, frame[10:])
        self.asked += 1
        await self.holds.wait()
        if self.says < 0:
            return None
        description = {"error_code": self.says, "error_message": None, "cluster_id": "c", "controller_id": 0}
        content = {"throttle_time": 0, **description, "brokers": (), "cluster_authorized_operations": 0}
        answer = frames.answer(key, version, content, correlation_id)
        return struct.pack(">i", len(answer)) + answer


async def groups(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, struct.pack(">i", 0))


def describe(group: str = "m-1") -> bytes:
    """Body of DescribeGroups v0."""
    return struct.pack(">ih", 1, len(group)) + group.encode()


def find(group: str = "m-1") -> bytes:
    """Body of FindCoordinator v0."""
    return struct.pack(">h", len(group)) + group.encode()


@pytest.mark.parametrize("says", [-1, 34])
@pytest.mark.parametrize(("key", "body"), [(apis.DESCRIBE_GROUPS, describe()), (apis.FIND_COORDINATOR, find())])
async def test_no_pod_is_asked_for_a_client_that_its_broker_does_not_know(
    files: Files, says: int, key: int, body: bytes
) -> None:
    answering = LoginBroker()
    answering.says = says
    async with (
        Server(0, answering, files.context) as broker,
        Server(1, groups) as pod,
        gateway(broker, pod, **files.logins) as (_, port),
    ):
        client = await Client.connect(port, unchecked_context(None))
        client.send(key, 0, 1, body)
        assert await client.receive() == b""
        assert (answering.asked, pod.requests) == (1, [])


async def test_broker_is_asked_once_and_answers_stay_in_order(files: Files) -> None:
    answering = LoginBroker()
    answering.holds.clear()
    async with (
        Server(0, answering, files.context) as broker,
        Server(1, groups) as pod,
        gateway(broker, pod, **files.logins) as (_, port),
    ):
        client = await Client.connect(port, unchecked_context(None))
        client.send(LIST_OFFSETS, 1, 1, b"before")
        for number in range(2, 5):
            client.send(apis.DESCRIBE_GROUPS, 0, number, describe())
        client.send(LIST_OFFSETS, 1, 5, b"behind")
        await wait_for(lambda: answering.asked)
        assert pod.requests == []
        answering.holds.set()
        answers = [struct.unpack_from(">i", await client.receive())[0] for _ in range(5)]
        assert answers == [1, 2, 3, 4, 5]
        assert answering.asked == 1
        client.close()


async def test_login_of_another_user_ends_the_connection_and_another_login_is_asked_about_again(files: Files) -> None:
    answering = LoginBroker()

    def token(user: str) -> bytes:
        content = f"\0{user}\0secret".encode()
        return struct.pack(">i", len(content)) + content

    handshake = struct.pack(">h", 5) + b"PLAIN"
    async with (
        Server(0, answering, files.context) as broker,
        Server(1, groups) as pod,
        gateway(broker, pod, **files.logins) as (_, port),
    ):
        client = await Client.connect(port, unchecked_context(None))
        for number in (1, 4):
            client.send(apis.SASL_HANDSHAKE, 1, number, handshake)
            client.send(apis.SASL_AUTHENTICATE, 1, number + 1, token("alice"))
            client.send(apis.DESCRIBE_GROUPS, 0, number + 2, describe())
        assert [struct.unpack_from(">i", await client.receive())[0] for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        assert answering.asked == 2
        client.send(apis.SASL_HANDSHAKE, 1, 7, handshake)
        client.send(apis.SASL_AUTHENTICATE, 1, 8, token("bob"))
        client.send(apis.DESCRIBE_GROUPS, 0, 9, describe())
        assert len(await client.receive()) in (0, 10)  # the answer to the handshake may have been faster
        assert len(await client.receive()) in (0, 22)
        assert await client.receive() == b""
        await wait_for(lambda: not broker.connections or len(broker.connections) == 1)
        assert len(pod.requests) == 2


async def test_client_whose_broker_is_gone_has_to_log_in_again(files: Files) -> None:
    """Also where nothing waits: another broker would know nothing of its login."""
    answering = LoginBroker()
    async with (
        Server(0, answering, files.context) as broker,
        Server(1, groups) as pod,
        gateway(broker, pod, **files.logins) as (_, port),
    ):
        client = await Client.connect(port, unchecked_context(None))
        client.send(apis.SASL_HANDSHAKE, 1, 1, struct.pack(">h", 5) + b"PLAIN")
        assert await client.receive()
        broker.drop_connections()
        assert await client.receive() == b""


# -- a gateway that asks clients itself --------------------------------------------------------------------------------


async def test_gateway_logs_in_for_a_client_with_a_certificate_and_nobody_else_comes_in(files: Files) -> None:
    answering = LoginBroker()
    settings = files.logins | {"ssl_client_auth": "required"}
    shown = files.authority.write("client", member("client"))
    async with (
        Server(0, answering, files.context) as broker,
        Server(1, groups) as pod,
        gateway(broker, pod, **settings) as (_, port),
    ):
        own = len(answering.logins)
        client = await Client.connect(port, unchecked_context(shown))
        client.send(LIST_OFFSETS, 1, 1, b"asked")
        client.send(apis.DESCRIBE_GROUPS, 0, 2, describe())
        assert [struct.unpack_from(">i", await client.receive())[0] for _ in range(2)] == [1, 2]
        assert answering.logins[own:] == [b"gateway\0gateway"[-14:]]
        assert answering.asked == 0, "the gateway knows the client itself"
        client.send(apis.SASL_HANDSHAKE, 1, 3, struct.pack(">h", 5) + b"PLAIN")
        assert await client.receive() == b"", "its broker knows the gateway, and shall know nobody else"
        stranger = await Client.connect(port, unchecked_context(None))
        stranger.send(LIST_OFFSETS, 1, 1, b"asked")
        with contextlib.suppress(ssl.SSLError):
            assert await stranger.receive() == b""
        assert len(answering.logins) == own + 1


async def test_client_connects_again_before_the_gateways_session_at_its_broker_ends(files: Files) -> None:
    answering = LoginBroker()
    answering.lifetime_ms = 700
    settings = files.logins | {"ssl_client_auth": "required"}
    shown = files.authority.write("client", member("client"))
    async with Server(0, answering, files.context) as broker, gateway(broker, **settings) as (under_test, port):
        client = await Client.connect(port, unchecked_context(shown))
        client.send(LIST_OFFSETS, 1, 1, b"asked")
        assert await client.receive()
        assert await client.receive() == b""
        await wait_for(lambda: under_test.ended["login_over"] == 1)


# -- logins at Muster --------------------------------------------------------------------------------------------------


async def test_pods_are_asked_on_behalf_of_each_client_and_again_before_a_session_ends(files: Files) -> None:
    at_pod = LoginBroker()
    at_pod.lifetime_ms, at_pod.token_bytes = 1500, len(b"alice\0gateway\0gateway")
    to_pods = {name.replace("upstream", "muster"): value for name, value in files.logins.items() if "upstream" in name}
    settings = files.logins | to_pods | {"muster_act_for_clients": "1"}
    token = b"\0alice\0secret"
    on_behalf = b"alice\0gateway\0gateway"
    async with (
        Server(0, LoginBroker(), files.context) as broker,
        Server(1, at_pod, files.context) as pod,
        gateway(broker, pod, **settings) as (_, port),
    ):
        client = await Client.connect(port, unchecked_context(None))
        client.send(apis.SASL_HANDSHAKE, 1, 1, struct.pack(">h", 5) + b"PLAIN")
        client.send(apis.SASL_AUTHENTICATE, 1, 2, struct.pack(">i", len(token)) + token)
        number = 3
        assert [struct.unpack_from(">i", await client.receive())[0] for _ in range(2)] == [1, 2]
        async with asyncio.timeout(30):
            while at_pod.logins.count(on_behalf) < 3:
                client.send(apis.DESCRIBE_GROUPS, 0, number, describe())
                assert struct.unpack_from(">i", await client.receive())[0] == number
                number += 1
                await asyncio.sleep(0.05)
        assert at_pod.groups == number - 3, "each request is carried out once"
        nameless = await Client.connect(port, unchecked_context(None))
        nameless.send(apis.SASL_HANDSHAKE, 1, 1, struct.pack(">h", 6) + b"GSSAPI")
        nameless.send(apis.SASL_AUTHENTICATE, 1, 2, struct.pack(">i", 2) + b"??")
        nameless.send(apis.DESCRIBE_GROUPS, 0, 3, describe())
        assert [len(await nameless.receive()) > 0 for _ in range(3)] == [True, True, True]
        assert at_pod.logins[-1] == b"ANONYMOUS\0gateway\0gateway"[-at_pod.token_bytes :]
        client.close()
