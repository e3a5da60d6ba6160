"""Limits for an address and a user, and the lines of a real pod's log about what it refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod
from tests.support.scram import log_in, users_file

pytestmark = pytest.mark.integration

DEADLINE_S = 20.0
GROUP_AUTHORIZATION_FAILED = 30
PASSWORDS = {"alice": "pencil", "bob": "builder"}


async def closed(client: KafkaClient) -> bool:
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await client.reader.read() == b""
        except ConnectionError:
            return True


def told(pod: SoloPod, event: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in pod.log().splitlines() if line.startswith("{"))
    return [each for each in lines if each["event"] == event]


def with_logins(tmp_path: Path, *more: str) -> list[str]:
    (tmp_path / "users.json").write_text(users_file(PASSWORDS))
    acls = [{"principal": "User:*", "operation": "READ", "resource": "TOPIC", "name": "*"}]
    (tmp_path / "acls.json").write_text(json.dumps({"acls": acls}))
    return [
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        f"muster.users.file={tmp_path / 'users.json'}",
        f"muster.acls.file={tmp_path / 'acls.json'}",
        *more,
    ]


async def test_connections_of_an_address_are_bounded(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=["max.connections.per.ip=2"]) as pod:
        clients = [await pod.client() for _ in range(2)]
        assert [await each.commit("g", 1) for each in clients] == [0, 0]
        assert await closed(await pod.client())
        assert await pod.metric("muster_connection_errors_total", reason="too_many_of_address") == 1
        (line,) = told(pod, "connection_refused")
        assert (line["client"], line["reason"], line["limit"]) == ("127.0.0.1", "too_many_of_address", 2)
        await clients[0].close()
        again = await until_served(pod)
        assert await clients[1].commit("g", 2) == 0
        await again.close()
        await clients[1].close()


async def until_served(pod: SoloPod) -> KafkaClient:
    """The pod notices the end of another connection at some moment."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            client = await pod.client()
            try:
                if await client.commit("g", 3) == 0:
                    return client
            except (ConnectionError, asyncio.IncompleteReadError):
                await client.close()


async def test_connections_of_a_user_are_bounded_and_others_come_in(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=with_logins(tmp_path, "muster.max.connections.per.user=1")) as pod:
        alice, again, bob = await pod.client(), await pod.client(), await pod.client()
        await log_in(alice, "alice", "pencil")
        await log_in(again, "alice", "pencil")
        assert await closed(again)
        assert (await log_in(bob, "bob", "builder")).error_code == 0
        assert await pod.metric("muster_connection_errors_total", reason="too_many_of_user") == 1
        (line,) = told(pod, "connection_refused")
        assert (line["principal"], line["reason"]) == ("User:alice", "too_many_of_user")
        for each in (alice, bob):
            assert await each.commit("g", 1) == GROUP_AUTHORIZATION_FAILED
            await each.close()


async def test_flood_of_refused_requests_is_told_in_a_few_lines_and_counted(tmp_path: Path) -> None:
    config = with_logins(tmp_path, "muster.audit.lines.per.second=4")
    async with SoloPod(tmp_path / "data", config=config) as pod:
        alice = await pod.client()
        await log_in(alice, "alice", "pencil")
        for _ in range(500):
            assert await alice.commit("payroll", 1) == GROUP_AUTHORIZATION_FAILED
        assert await pod.metric("muster_refused_requests_total", resource="GROUP") == 500
        async with asyncio.timeout(DEADLINE_S):
            while (
                sum(each["number"] for each in told(pod, "refusals_not_logged")) + len(told(pod, "request_refused"))
                < 500
            ):
                await asyncio.sleep(0.1)
        lines = told(pod, "request_refused")
        who = {(each["client"], each["principal"], each["request"], each["operation"], each["name"]) for each in lines}
        assert who == {("127.0.0.1", "User:alice", "OffsetCommitRequest", "READ", "payroll")}
        assert len(lines) < 100
        await alice.close()
