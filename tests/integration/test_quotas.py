"""Quotas and bounds of a user at a real pod: throttled as Kafka does it, held up, and never at the cost of others."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition
from tests.support.kafka import KafkaClient, commit_request, entity, schema
from tests.support.pod import SoloPod
from tests.support.scram import log_in, users_file

from muster_coordinator.listener.user_load import BURST_WINDOWS

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
PASSWORDS = {"alice": "pencil", "bob": "builder"}


def config(tmp_path: Path, *more: str, **quotas: dict[str, int]) -> list[str]:
    users = json.loads(users_file(PASSWORDS))["users"]
    (tmp_path / "users.json").write_text(json.dumps({"users": users, "quotas": quotas}))
    return ["sasl.enabled.mechanisms=SCRAM-SHA-512", f"muster.users.file={tmp_path / 'users.json'}", *more]


async def logged_in(pod: SoloPod, user: str) -> KafkaClient:
    client = await pod.client()
    assert (await log_in(client, user, PASSWORDS[user])).error_code == 0
    return client


async def commits(client: KafkaClient, number: int) -> list[Any]:
    return [await client.call(commit_request("g", [("t", 0, 1)])) for _ in range(number)]


async def until_throttled(client: KafkaClient) -> list[Any]:
    """The answers, the last of which says so."""
    answers = await commits(client, 1)
    async with asyncio.timeout(DEADLINE_S):
        while not answers[-1].throttle_time:
            answers += await commits(client, 1)
    return answers


async def test_user_above_its_rate_is_told_so_and_read_later_and_others_are_not(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=config(tmp_path, alice={"requestRate": 20})) as pod:
        alice, again, bob = [await logged_in(pod, name) for name in ("alice", "alice", "bob")]
        began = time.monotonic()
        answers = await until_throttled(alice)
        assert len(answers) > 20 * BURST_WINDOWS, "of a user that was silent so many are not throttled"
        answers += await commits(alice, 20)
        assert len(answers) <= 20 * BURST_WINDOWS + 20 * (time.monotonic() - began) + 2
        assert {int(p.error_code) for each in answers for t in each.topics for p in t.partitions} == {0}
        assert len(await until_throttled(again)) < 20 * BURST_WINDOWS / 2, "the rate is the user's"
        assert not any(each.throttle_time for each in await commits(bob, 300))
        assert await pod.metric("muster_throttled_requests_total") >= 2
        await alice.close()
        await until_throttled(again)
        anew = await logged_in(pod, "alice")
        assert len(await until_throttled(anew)) < 20 * BURST_WINDOWS / 2, "a new connection has no new burst"
        for each in (again, anew, bob):
            await each.close()


async def test_requests_that_were_sent_ahead_are_carried_out_at_the_rate_and_in_order(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=config(tmp_path, alice={"requestRate": 50})) as pod:
        alice, bob = await logged_in(pod, "alice"), await logged_in(pod, "bob")
        number = 50 * BURST_WINDOWS + 50
        began = time.monotonic()
        sent = [alice.send(commit_request("g", [("t", 0, offset)])) for offset in range(number)]
        response = entity("offset_commit", 7, "response")
        async with asyncio.timeout(DEADLINE_S):
            received = [await alice.receive(response) for _ in sent]
        assert [each[0] for each in received] == sent
        assert time.monotonic() - began > 0.8
        assert await bob.fetch("g") == (number - 1, 0)
        # The rate of a user changes on open connections.
        config(tmp_path, alice={"requestRate": 1_000_000})
        async with asyncio.timeout(DEADLINE_S):
            while (await commits(alice, 1))[0].throttle_time:
                pass
        for each in (alice, bob):
            await each.close()


async def test_client_that_sends_no_more_gets_the_answers_that_wait_for_the_rate(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", config=config(tmp_path, alice={"requestRate": 20})) as pod:
        alice = await logged_in(pod, "alice")
        sent = [alice.send(commit_request("g", [("t", 0, offset)])) for offset in range(20 * BURST_WINDOWS + 10)]
        alice.writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            received = [(await alice.receive(entity("offset_commit", 7, "response")))[0] for _ in sent]
            assert received == sent
            assert await alice.reader.read() == b"", "and then the pod closes"
        await alice.close()


async def test_connections_of_a_user_are_bounded_by_its_quota(tmp_path: Path) -> None:
    limits = config(tmp_path, "muster.max.connections.per.user=1", alice={"connections": 2})
    async with SoloPod(tmp_path / "data", config=limits) as pod:
        clients = [await logged_in(pod, "alice") for _ in range(3)]
        assert await clients[2].reader.read() == b""
        assert [await each.commit("g", 1) for each in clients[:2]] == [0, 0]
        bob, second = await logged_in(pod, "bob"), await logged_in(pod, "bob")
        assert await second.reader.read() == b""
        for each in (*clients, bob, second):
            await each.close()


async def test_requests_in_flight_of_a_user_are_bounded_and_others_are_served(tmp_path: Path) -> None:
    """Joins are parked while the group waits for more members; what the user sends beyond its room is carried out when
    they are answered."""
    more = config(tmp_path, "muster.max.in.flight.per.user=3", "group.initial.rebalance.delay.ms=1500")
    async with SoloPod(tmp_path / "data", config=more) as pod:
        joining = [await logged_in(pod, "alice") for _ in range(3)]
        for number, client in enumerate(joining):
            client.send(join(f"parked-{number}"))
        await until_asked(pod, "JoinGroup", 3)
        alice, bob = await logged_in(pod, "alice"), await logged_in(pod, "bob")
        sent = [alice.send(commit_request("g", [("t", 0, offset)])) for offset in range(50)]
        assert await bob.commit("other", 1) == 0
        assert await bob.fetch("g") == (-1, 0), "nothing of it was carried out yet"
        for client in joining:
            assert (await client.receive(entity("join_group", 3, "response")))[1].error_code == 0
        received = [(await alice.receive(entity("offset_commit", 7, "response")))[0] for _ in sent]
        assert received == sent
        assert await bob.fetch("g") == (49, 0)
        for each in (*joining, alice, bob):
            await each.close()


async def test_room_of_a_connection_that_is_gone_is_free(tmp_path: Path) -> None:
    more = config(tmp_path, "muster.max.in.flight.per.user=1", "group.initial.rebalance.delay.ms=600000")
    async with SoloPod(tmp_path / "data", config=more) as pod:
        joining, waits, alice = [await logged_in(pod, "alice") for _ in range(3)]
        joining.send(join("parked"))
        await until_asked(pod, "JoinGroup", 1)
        waits.send(commit_request("g", [("t", 0, 1)]))
        await waits.close()
        committed = asyncio.ensure_future(alice.commit("g", 2))
        linger = struct.pack("ii", 1, 0)  # ends with a reset: after a mere end of what it sends a client is answered
        joining.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        joining.writer.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            assert await committed == 0
        await alice.close()


def test_client_of_a_library_goes_on_at_its_rate(tmp_path: Path) -> None:
    """kafka-python leaves a connection alone for the time that it is told."""

    async def scenario() -> None:
        settings = config(tmp_path, alice={"requestRate": 5})
        async with SoloPod(tmp_path / "data", topics={"t": 1}, config=settings) as pod:
            commits = await asyncio.to_thread(commit_for, pod.kafka_port, 10.0)
            assert commits < 5 * (BURST_WINDOWS + 10) + 5
            assert commits > 5 * BURST_WINDOWS // 2
            assert await pod.metric("muster_throttled_requests_total") > 3

    asyncio.run(scenario())


def commit_for(port: int, seconds: float) -> int:
    consumer = KafkaConsumer(
        bootstrap_servers=f"127.0.0.1:{port}",
        group_id="g",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORDS["alice"],
    )
    partition = TopicPartition("t", 0)
    consumer.assign([partition])
    number, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        consumer.commit({partition: OffsetAndMetadata(number, "", -1)}, timeout_ms=30_000)
        number += 1
    consumer.close()
    return number


def join(group: str) -> Any:
    m = schema("join_group", 3)
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout=timedelta(seconds=10),
        rebalance_timeout=timedelta(seconds=60),
        member_id="",
        protocol_type="other",
        protocols=(m.JoinGroupRequestProtocol(name="p", metadata=b"x"),),
    )


async def until_asked(pod: SoloPod, api: str, number: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await pod.metric("muster_requests_total", api=api) < number:
            await asyncio.sleep(0.02)
