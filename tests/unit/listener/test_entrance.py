"""No bytes get past the entrance but those of a login, and none makes it fail."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.kafka import encode_request, schema
from tests.support.scram import client_first, users_file
from tests.unit.listener.test_handlers import refuse_early

from muster_coordinator.listener.entrance import Entrance
from muster_coordinator.listener.handlers.table import handler_table
from muster_coordinator.listener.rotation import QUANTUM
from muster_coordinator.listener.sasl import Sasl
from muster_coordinator.listener.state import ServerState
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.podapi.image import Broker, MetadataImage
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.security.identity import Identity
from muster_coordinator.security.oauth import OAuthBearerServer, Token, TokenError
from muster_coordinator.security.sasl import Work
from muster_coordinator.security.users import parse_users
from muster_coordinator.settings import ListenerSettings, SaslSettings
from muster_coordinator.wire.served import KAFKA_4_4

USERS = parse_users(users_file({"alice": "pencil"}).encode())
HANDSHAKES = [
    encode_request(schema("sasl_handshake", version).SaslHandshakeRequest(mechanism=mechanism), 1)
    for version in (0, 1)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "x")
]
PLAIN_HANDSHAKE = encode_request(schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="PLAIN"), 1)
VERSIONS = encode_request(schema("api_versions", 0).ApiVersionsRequest(), 2)


def token(value: bytes) -> bytes:
    return encode_request(schema("sasl_authenticate", 2).SaslAuthenticateRequest(auth_bytes=value), 3)


def bare(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


VALUES = st.binary(max_size=80) | st.sampled_from(
    [
        *(client_first("alice", "n"), client_first("bob", "n"), b"c=biws,r=n,p=AAAA"),
        *(b"\0alice\0wrong", b"\0alice\0", b"n,,\x01auth=Bearer x.y.z\x01\x01", b"\x01"),
    ]
)
FRAMES = st.one_of(
    st.sampled_from(HANDSHAKES), st.just(VERSIONS), VALUES.map(token), VALUES.map(bare), st.binary(max_size=40)
)


class Transport:
    """In place of a transport of asyncio."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False
        self.is_paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else None

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@given(st.lists(FRAMES, max_size=6), st.integers(1, 50))
@example([HANDSHAKES[5], token(client_first("alice", "n")), token(b"c=biws,r=n,p=AAAA")], 7)
def test_whatever_comes_nobody_is_let_in_and_nothing_is_left(frames: list[bytes], chunk: int) -> None:
    asyncio.run(_converse(b"".join(frames), chunk))


def no_token(text: str) -> Token:
    raise TokenError("none is taken")


def entered(sasl: Sasl, state: ServerState, view: ClusterView | None = None) -> tuple[Entrance, Transport]:
    handlers = handler_table(view or ClusterView(), {}, refuse_early, cast(PodConnections, None))

    def welcome(identity: Identity, lifetime_ms: int | None) -> asyncio.Protocol:
        raise AssertionError(f"{identity} was let in")

    entrance, transport = Entrance(state, sasl, handlers, welcome), Transport()
    entrance.connection_made(cast(asyncio.Transport, transport))
    return entrance, transport


@pytest.mark.parametrize(("node_id", "code"), [(9, 0), (-1, 42)])
async def test_client_says_before_its_login_which_server_it_looks_for_and_is_not_held_to_it(
    node_id: int, code: int
) -> None:
    """Version 5 of Kafka 4.4: SaslServerAuthenticator refuses half of a server only."""
    view = ClusterView("pod-0")
    view.update(MetadataImage(1, 1, "c", (Broker(0, "a", 1, "pod-0"),), 50, ()))
    clock = SystemClock()
    sasl = Sasl(SaslSettings("PLAIN"), lambda: USERS, clock)
    state = ServerState(ListenerSettings(), clock, served=KAFKA_4_4)
    entrance, transport = entered(sasl, state, view)
    of_another_cluster = b"\0\x12\0\5" + bytes(4) + b"\0\1x\0" + b"\2a\0021\2d" + struct.pack(">i", node_id) + b"\0"
    entrance.data_received(bare(of_another_cluster))
    assert struct.unpack_from(">iih", transport.written)[2] == code
    entrance.connection_lost(None)
    sasl.hashing.shutdown()


async def _converse(data: bytes, chunk: int) -> None:
    mechanisms = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER"
    settings, clock = SaslSettings(mechanisms, connection_failed_authentication_delay_ms=0), SystemClock()
    sasl = Sasl(settings, lambda: USERS, clock, lambda: OAuthBearerServer(no_token))
    state = ServerState(ListenerSettings(), clock)
    entrance, transport = entered(sasl, state)
    for start in range(0, len(data), chunk):
        if transport.closed:
            break
        entrance.data_received(data[start : start + chunk])
        await asyncio.sleep(0)
    entrance.connection_lost(None)
    sasl.hashing.shutdown()
    assert (state.held_bytes, state.connections) == (0, set())
    assert sasl.admission.enter("127.0.0.1")


async def test_password_of_a_client_that_has_gone_is_not_hashed() -> None:
    clock, hashed, free = SystemClock(), list[str](), threading.Event()
    sasl = Sasl(SaslSettings("PLAIN"), lambda: USERS, clock)
    state = ServerState(ListenerSettings(), clock)
    others = sasl.hashing.submit(free.wait, 20)
    sasl.start = lambda mechanism: Watched(hashed)  # type: ignore[method-assign]
    for name in ("gone", "here"):
        entrance, _ = entered(sasl, state)
        entrance.data_received(PLAIN_HANDSHAKE + token(name.encode()))
        if name == "gone":
            entrance.connection_lost(None)
    await turn()
    free.set()
    sasl.hashing.shutdown()
    assert others.result()
    assert hashed == ["here"]
    entrance.connection_lost(None)


class Watched:
    """A mechanism that says which tokens were worked on."""

    user, by, ends_ms = None, "", None

    def __init__(self, hashed: list[str]) -> None:
        self._hashed = hashed

    def step(self, token: bytes) -> Work:
        def work() -> bytes:
            self._hashed.append(token.decode())
            return b""

        return work


UNKNOWN = struct.pack(">ihhih", 10, 18, 99, 7, -1)  # ApiVersions of a version that nobody has


@contextmanager
def flooded() -> Iterator[tuple[Entrance, Transport]]:
    """A client that has not said who it is, and has sent a thousand requests at once."""
    clock = SystemClock()
    sasl = Sasl(SaslSettings("PLAIN"), lambda: USERS, clock)
    entrance, transport = entered(sasl, ServerState(ListenerSettings(), clock))
    entrance.data_received(UNKNOWN * 1000)
    yield entrance, transport
    entrance.connection_lost(None)
    sasl.hashing.shutdown()


def answers(transport: Transport) -> int:
    return transport.written.count(struct.pack(">ih", 7, 35))


async def turn() -> None:
    await asyncio.sleep(0)


async def test_requests_that_come_at_once_are_answered_some_in_each_turn() -> None:
    with flooded() as (entrance, transport):
        assert 0 < answers(transport) <= QUANTUM
        assert transport.is_paused
        await turn()
        assert QUANTUM < answers(transport) <= 2 * QUANTUM
        entrance.data_received(UNKNOWN)
        assert answers(transport) <= 2 * QUANTUM, "not sooner because more has come"
        for _ in range(1000):
            await turn()
        assert answers(transport) == 1001
        assert not transport.is_paused
        assert entrance.held_bytes == 0


async def test_client_that_reads_no_answers_gets_no_more_of_them() -> None:
    with flooded() as (entrance, transport):
        entrance.pause_writing()
        for _ in range(100):
            await turn()
        assert answers(transport) <= QUANTUM
        assert transport.is_paused
        entrance.resume_writing()
        for _ in range(1000):
            await turn()
        assert answers(transport) == 1000
        assert not transport.is_paused
