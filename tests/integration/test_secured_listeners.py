"""A pod with a plain listener and one with TLS and logins: each asks its own clients only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod, free_ports
from tests.support.scram import log_in, users_file

pytest.importorskip("cryptography")

from tests.support.certificates import Authority, unchecked_context
from tests.support.certificates import pod as member

pytestmark = pytest.mark.integration

DEADLINE_S = 20.0
NOT_KNOWN = (OSError, asyncio.IncompleteReadError, ssl.SSLError)


class TwoListeners(SoloPod):
    """`config` has {tls} and {users} where these files are named."""

    def __init__(self, tmp_path: Path, *config: str) -> None:
        self.users = tmp_path / "users.json"
        self.write_users("alice")
        tls = Authority(tmp_path / "certificates").write("server", member("pod-0")).certificate.parent
        (self.outside_port,) = free_ports(1)
        self.program = (*SoloPod.program, "--listener", f"outside=127.0.0.1:{self.outside_port}")
        super().__init__(tmp_path / "data", config=[each.format(tls=tls, users=self.users) for each in config])

    def write_users(self, *names: str) -> None:
        new = self.users.with_suffix(".new")
        new.write_text(users_file(dict.fromkeys(names, "pencil")))
        new.replace(self.users)

    async def outside(self) -> KafkaClient:
        return await KafkaClient.connect(self.outside_port, tls=unchecked_context(None))


@pytest_asyncio.fixture
async def pod(tmp_path: Path) -> AsyncIterator[TwoListeners]:
    async with TwoListeners(
        tmp_path,
        "listener.name.outside.muster.listener.tls.dir={tls}",
        "listener.name.outside.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        "muster.users.file={users}",
    ) as pod:
        yield pod


async def test_plain_clients_inside_and_logins_by_tls_outside(pod: TwoListeners) -> None:
    inside = await pod.client()
    assert await inside.commit("g", 5) == 0
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        client = await pod.outside()
        assert (await log_in(client, "alice", "pencil", mechanism)).error_code == 0
        assert await client.commit("g", 5) == 0
        wrong = await pod.outside()
        assert (await log_in(wrong, "alice", "wrong", mechanism)).error_code == 58
    assert (await log_in(inside, "alice", "pencil")).error_code == 34, "nobody asks who it is"
    assert await inside.commit("g", 6) == 0


async def test_outside_takes_nobody_without_tls_or_a_login(pod: TwoListeners) -> None:
    with pytest.raises(NOT_KNOWN):
        await (await pod.outside()).commit("g", 5)
    with pytest.raises(NOT_KNOWN):
        await log_in(await KafkaClient.connect(pod.outside_port), "alice", "pencil")
    with pytest.raises(NOT_KNOWN):
        await KafkaClient.connect(pod.kafka_port, tls=unchecked_context(None))


async def test_users_that_go_take_no_connection_of_the_plain_listener_with_them(pod: TwoListeners) -> None:
    inside, outside = await pod.client(), await pod.outside()
    await log_in(outside, "alice", "pencil")
    pod.write_users("bob")
    async with asyncio.timeout(DEADLINE_S):
        assert await outside.reader.read() == b""
    assert await inside.commit("g", 5) == 0


async def test_first_listener_may_be_closed_and_another_plain(tmp_path: Path) -> None:
    async with TwoListeners(
        tmp_path,
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "muster.users.file={users}",
        "listener.name.outside.sasl.enabled.mechanisms=",
    ) as pod:
        plain = await KafkaClient.connect(pod.outside_port)
        assert await plain.commit("g", 5) == 0
        with pytest.raises(NOT_KNOWN):
            await (await pod.client()).commit("g", 5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (["listener.name.outsite.ssl.client.auth=none"], r"listener\.name\.outsite: --listener names no such listener"),
        (["listener.name.outside.sasl.enabled.mechanisms=PLAIN"], r"needs muster\.users\.file"),
        (
            ["listener.name.outside.sasl.enabled.mechanisms=PLAIN", "muster.users.file={users}"],
            "listener outside: sasl.enabled.mechanisms: PLAIN sends passwords as they are",
        ),
        (["listener.name.outside.ssl.client.auth=required"], r"listener outside: ssl\.client\.auth needs"),
    ],
)
async def test_pod_does_not_start_half_protected(tmp_path: Path, config: list[str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        await TwoListeners(tmp_path, *config).__aenter__()
