"""SASL of a real pod: Kafka's order of requests and its errors, sessions that end, users that come and go."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.kafka import KafkaClient, encode_request, entity, schema
from tests.support.pod import SoloPod
from tests.support.scram import client_final, client_first, log_in, users_file

pytestmark = pytest.mark.integration

PASSWORDS = {"alice": "pencil", "bob": "builder"}
LIFETIME_MS = 2500
RECEIVE_MAX = 2048
DEADLINE_S = 20.0
PAIRS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
AUTHENTICATION_FAILED, ILLEGAL_STATE, UNSUPPORTED_MECHANISM = 58, 34, 33


class UsersFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(PASSWORDS)

    def write(self, passwords: dict[str, str]) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(users_file(passwords))
        os.replace(new, self.path)


@pytest.fixture
def users(tmp_path: Path) -> UsersFile:
    return UsersFile(tmp_path / "users.json")


def config(users: UsersFile, *more: str) -> list[str]:
    return [
        "sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256",
        f"muster.users.file={users.path}",
        f"sasl.server.max.receive.size={RECEIVE_MAX}",
        "connection.failed.authentication.delay.ms=0",
        *more,
    ]


@pytest_asyncio.fixture
async def pod(tmp_path: Path, users: UsersFile) -> AsyncIterator[SoloPod]:
    async with SoloPod(tmp_path / "data", config=config(users)) as pod:
        yield pod


@pytest_asyncio.fixture
async def ending(tmp_path: Path, users: UsersFile) -> AsyncIterator[SoloPod]:
    """A pod whose sessions end."""
    more = config(users, f"connections.max.reauth.ms={LIFETIME_MS}")
    async with SoloPod(tmp_path / "data", config=more) as pod:
        yield pod


async def closed(client: KafkaClient) -> bool:
    """Whether the pod closes the connection, without a further byte."""
    async with asyncio.timeout(DEADLINE_S):
        return await client.reader.read() == b""


def versions(version: int = 3) -> Any:
    return schema("api_versions", version).ApiVersionsRequest(
        **({"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {})
    )


def handshake(mechanism: str, version: int = 1) -> Any:
    return schema("sasl_handshake", version).SaslHandshakeRequest(mechanism=mechanism)


def authenticate(token: bytes, version: int = 2) -> Any:
    return schema("sasl_authenticate", version).SaslAuthenticateRequest(auth_bytes=token)


async def test_who_knows_the_password_may_commit(pod: SoloPod) -> None:
    for mechanism, version, asks_first in itertools.product(PAIRS, (0, 1, 2), (True, False)):
        client = await pod.client()
        if asks_first:
            assert {key.api_key for key in (await client.call(versions())).api_keys} >= {17, 36}
        answer = await log_in(client, "alice", "pencil", mechanism, version)
        assert (answer.error_code, answer.error_message) == (0, "")
        assert await client.commit("g", 5) == 0
        assert (await client.call(versions())).error_code == 0, "again, like any other request"
        await client.close()


async def test_who_does_not_is_told_as_little_as_by_kafka(pod: SoloPod) -> None:
    for user, password in (("alice", "builder"), ("nobody", "pencil"), ("alice", "")):
        client = await pod.client()
        answer = await log_in(client, user, password)
        assert answer.error_code == AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
        )
        assert await closed(client)


async def test_mechanism_that_is_not_enabled_is_refused_with_those_that_are(pod: SoloPod) -> None:
    for mechanism in ("PLAIN", "GSSAPI", ""):
        client = await pod.client()
        answer = await client.call(handshake(mechanism))
        assert answer.error_code == UNSUPPORTED_MECHANISM
        assert answer.mechanisms == PAIRS
        assert await closed(client)


async def test_client_of_a_handshake_of_version_0_sends_bare_tokens(pod: SoloPod) -> None:
    client = await pod.client()

    async def exchange(token: bytes) -> bytes:
        client.writer.write(struct.pack(">i", len(token)) + token)
        (length,) = struct.unpack(">i", await client.reader.readexactly(4))
        return await client.reader.readexactly(length)

    assert (await client.call(handshake("SCRAM-SHA-256", 0))).error_code == 0
    first = client_first("bob", "clients")
    final, expected = client_final("sha256", first, await exchange(first), "builder")
    assert await exchange(final) == expected
    assert await client.commit("g", 5) == 0
    await client.close()
    refused = await pod.client()
    await refused.call(handshake("SCRAM-SHA-256", 0))
    refused.writer.write(struct.pack(">i", 5) + b"wrong")
    assert await closed(refused)


async def test_request_out_of_order_closes_the_connection(pod: SoloPod) -> None:
    scram = handshake("SCRAM-SHA-512")
    heartbeat = schema("heartbeat", 4).HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    orders = [
        [heartbeat],
        [authenticate(b"\0alice\0pencil")],
        [versions(), versions()],
        [versions(), heartbeat],
        [scram, versions()],
        [scram, scram],
        [scram, heartbeat],
    ]
    for *answered, last in orders:
        client = await pod.client()
        for request in answered:
            assert (await client.call(request)).error_code == 0
        if answered == [scram]:
            assert (await client.call(last)).error_code == ILLEGAL_STATE
        else:
            client.send(last)
        assert await closed(client)
    assert await pod.metric("muster_connection_errors_total", reason="sasl_state") == len(orders)


async def test_bytes_that_are_no_login_close_the_connection(pod: SoloPod) -> None:
    for frame, reason in (
        (struct.pack(">i", RECEIVE_MAX + 1), "frame_too_large"),
        (struct.pack(">i", -1), "frame_too_large"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame_too_large"),
        (struct.pack(">i", 3) + b"abc", "malformed_request"),
        (struct.pack(">ihhih", 10, 36, 9, 1, -1), "unsupported_request"),
        (struct.pack(">ihhihh", 12, 17, 1, 1, -1, 99), "malformed_request"),
    ):
        before = await pod.metric("muster_connection_errors_total", reason=reason)
        client = await pod.client()
        client.writer.write(frame)
        assert await closed(client)
        assert await pod.metric("muster_connection_errors_total", reason=reason) == before + 1


async def test_versions_that_are_unknown_are_answered_and_asked_for_again(pod: SoloPod) -> None:
    client = await pod.client()
    client.writer.write(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    _, answer = await client.receive(entity("api_versions", 0, "response"))
    assert answer.error_code == 35
    assert (await client.call(versions(0))).error_code == 0
    assert (await log_in(client, "alice", "pencil")).error_code == 0
    await client.close()


async def test_requests_right_behind_the_last_token_are_answered(pod: SoloPod) -> None:
    client = await pod.client()
    await client.call(handshake("SCRAM-SHA-512"))
    first = client_first("alice", "clients")
    challenge = await client.call(authenticate(first))
    final, _ = client_final("sha512", first, challenge.auth_bytes, "pencil")
    behind = encode_request(versions(), 8) + encode_request(versions(), 9)
    client.writer.write(encode_request(authenticate(final), 7) + behind[:-5])
    await client.receive(entity("sasl_authenticate", 2, "response"))
    client.writer.write(behind[-5:])
    for correlation_id in (8, 9):
        assert (await client.receive(entity("api_versions", 3, "response")))[0] == correlation_id
    await client.close()


async def test_known_client_is_refused_another_login(pod: SoloPod) -> None:
    client = await pod.client()
    await log_in(client, "alice", "pencil")
    assert (await client.call(handshake("SCRAM-SHA-512"))).error_code == ILLEGAL_STATE
    answer = await client.call(authenticate(b""))
    assert answer.error_code == ILLEGAL_STATE
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert await client.commit("g", 5) == 0
    await client.close()


async def test_removed_user_is_out_and_a_new_one_in(pod: SoloPod, users: UsersFile) -> None:
    alice, bob = await pod.client(), await pod.client()
    await log_in(alice, "alice", "pencil")
    await log_in(bob, "bob", "builder")
    users.write({"bob": "builder", "carol": "christmas"})
    assert await closed(alice)
    assert await bob.commit("g", 5) == 0
    for user, password, code in (("alice", "pencil", AUTHENTICATION_FAILED), ("carol", "christmas", 0)):
        client = await pod.client()
        assert (await log_in(client, user, password)).error_code == code
        await client.close()
    await bob.close()
    assert await pod.metric("muster_connection_errors_total", reason="user_removed") == 1


# -- sessions that end ------------------------------------------------------------------------------------------------


async def test_client_that_says_again_who_it_is_goes_on_and_another_is_closed(ending: SoloPod) -> None:
    faithful, other = await ending.client(), await ending.client()
    for client in (faithful, other):
        assert (await log_in(client, "alice", "pencil")).session_lifetime.total_seconds() * 1000 == LIFETIME_MS
    begin = time.monotonic()
    again = begin
    while time.monotonic() < begin + 2 * LIFETIME_MS / 1000:
        assert await faithful.commit("g", 5) == 0
        if time.monotonic() > again + LIFETIME_MS / 2000:
            again = time.monotonic()
            assert (await log_in(faithful, "alice", "pencil")).error_code == 0
        await asyncio.sleep(0.05)
    other.send(versions())
    assert await closed(other)
    await faithful.close()


async def test_idle_client_may_say_who_it_is_after_its_session(ending: SoloPod) -> None:
    client = await ending.client()
    await log_in(client, "alice", "pencil")
    await asyncio.sleep(LIFETIME_MS / 1000 + 1.5)  # the time itself is what is tested
    assert (await log_in(client, "alice", "pencil")).error_code == 0
    assert await client.commit("g", 5) == 0
    await client.close()


async def test_nobody_becomes_another_user_on_the_same_connection(ending: SoloPod) -> None:
    for user, password, mechanism, said in (
        ("bob", "builder", "SCRAM-SHA-512", "Cannot change principals during re-authentication"),
        ("alice", "builder", "SCRAM-SHA-512", "Authentication failed during re-authentication due to invalid cred"),
        ("alice", "pencil", "SCRAM-SHA-256", None),
    ):
        client = await ending.client()
        await log_in(client, "alice", "pencil")
        if said is None:
            with pytest.raises(asyncio.IncompleteReadError):
                await log_in(client, user, password, mechanism)
        else:
            answer = await log_in(client, user, password, mechanism)
            assert answer.error_code == AUTHENTICATION_FAILED
            assert answer.error_message.startswith(said)
            assert await closed(client)
    lines = [json.loads(line) for line in ending.log().splitlines() if '"login_refused"' in line]
    assert [(each["principal"], each["error"]) for each in lines] == [
        ("User:alice", "another user"),
        ("User:alice", "wrong password"),
    ]
    assert "bob" not in ending.log(), "whom the client wants to be is not logged: it could be a password"


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_failed_logins_of_an_address_wait_ever_longer(tmp_path: Path, users: UsersFile) -> None:
    more = [line for line in config(users) if "delay" not in line]
    async with SoloPod(tmp_path / "data", config=more) as pod:
        waits = []
        for _ in range(4):
            client = await pod.client()
            begin = time.monotonic()
            assert (await log_in(client, "alice", "wrong")).error_code == AUTHENTICATION_FAILED
            waits.append(time.monotonic() - begin)
            await client.close()
        assert [wait >= 0.1 * 2**number for number, wait in enumerate(waits)] == [True] * 4, waits
        client = await pod.client()
        begin = time.monotonic()
        assert (await log_in(client, "alice", "pencil")).error_code == 0
        assert time.monotonic() - begin < 1.6, "who knows the password does not wait"
        await client.close()


async def test_connections_without_a_login_are_bounded_for_an_address_and_in_time(
    tmp_path: Path, users: UsersFile
) -> None:
    async with SoloPod(
        tmp_path / "data", config=config(users, "muster.max.logins.per.address=3", "muster.login.timeout.ms=4000")
    ) as pod:
        known = await pod.client()
        await log_in(known, "alice", "pencil")
        silent = [await pod.client() for _ in range(3)]
        for client in silent:
            await client.call(versions())
        assert await closed(await pod.client())
        assert await pod.metric("muster_connection_errors_total", reason="too_many_logins") == 1
        assert await known.commit("g", 5) == 0
        begin = time.monotonic()
        assert all([await closed(client) for client in silent])
        assert time.monotonic() - begin < 7
        assert await pod.metric("muster_connection_errors_total", reason="login_timeout") == 3
        client = await pod.client()
        assert (await log_in(client, "alice", "pencil")).error_code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"muster.users.file": ""}, r"sasl\.enabled\.mechanisms needs muster\.users\.file"),
        ({"muster.users.file": "/nowhere/users"}, r"muster\.users\.file: /nowhere/users: No such file"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN sends passwords as they are, and there is no TLS"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "'GSSAPI' is none of PLAIN"),
    ],
)
async def test_pod_does_not_start_half_protected(
    tmp_path: Path, users: UsersFile, change: dict[str, str], message: str
) -> None:
    settings = [f"{name}={value}" for name, value in change.items()]
    pod = SoloPod(tmp_path / "data", config=[*config(users), *settings])
    with pytest.raises(AssertionError, match=message):
        await pod.__aenter__()
