"""ACLs of a real pod: what clients see when they may not, and that a change counts while they are connected."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

DEADLINE_S = 20.0
GROUP = {"principal": "User:ANONYMOUS", "operation": "READ", "resource": "GROUP", "name": "mine"}
TOPIC = {"principal": "User:*", "operation": "READ", "resource": "TOPIC", "name": "t", "host": "127.0.0.1"}


class AclFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(GROUP, TOPIC)

    def write(self, *acls: dict[str, Any]) -> None:
        self.write_text(json.dumps({"acls": acls}))

    def write_text(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)


@pytest.fixture
def acls(tmp_path: Path) -> AclFile:
    return AclFile(tmp_path / "acls.json")


@pytest_asyncio.fixture
async def pod(tmp_path: Path, acls: AclFile) -> AsyncIterator[SoloPod]:
    config = [f"muster.acls.file={acls.path}", "group.initial.rebalance.delay.ms=0"]
    async with SoloPod(tmp_path / "data", topics={"t": 1, "hidden": 1}, config=config) as pod:
        yield pod


async def until_commit_gets(client: KafkaClient, code: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await client.commit("mine", 5) != code:
            await asyncio.sleep(0.05)


async def test_right_that_is_taken_away_is_gone_on_an_open_connection_and_back_when_given(
    pod: SoloPod, acls: AclFile
) -> None:
    client = await pod.client()
    assert await client.commit("mine", 4) == 0
    assert await client.commit("other", 4) == 30
    assert await client.commit("mine", 4, topic="hidden") == 29
    acls.write(GROUP)
    await until_commit_gets(client, 29)
    acls.write(TOPIC)
    await until_commit_gets(client, 30)
    assert await client.fetch("mine") == (-1, 30)
    acls.write(GROUP, TOPIC)
    await until_commit_gets(client, 0)
    assert await client.fetch("mine") == (5, 0)
    await client.close()


async def test_file_that_cannot_be_read_leaves_the_acls_before_it(pod: SoloPod, acls: AclFile) -> None:
    client = await pod.client()
    acls.write_text('{"acls": [{"principal": "User:ANONYMOUS"}]}')
    async with asyncio.timeout(DEADLINE_S):
        while "security_file_refused" not in pod.log():
            await asyncio.sleep(0.05)
    assert await client.commit("mine", 4) == 0
    assert await client.commit("other", 4) == 30
    await client.close()


async def test_librdkafka_is_told_what_it_may_not(pod: SoloPod) -> None:
    def consumer(group: str) -> Consumer:
        return Consumer({"bootstrap.servers": f"127.0.0.1:{pod.kafka_port}", "group.id": group})

    def code_of_commit(group: str, topic: str) -> int | None:
        committing = consumer(group)
        try:
            committing.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        except KafkaException as error:
            return int(error.args[0].code())
        finally:
            committing.close()
        return None

    def code_of_join(group: str, topic: str) -> int:
        joining = consumer(group)
        joining.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        try:
            while time.monotonic() < deadline:
                message = joining.poll(0.2)
                if message is not None and message.error():
                    return int(message.error().code())
        finally:
            joining.close()
        raise AssertionError("no error was told")

    assert await asyncio.to_thread(code_of_commit, "mine", "t") is None
    assert await asyncio.to_thread(code_of_commit, "mine", "hidden") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert await asyncio.to_thread(code_of_join, "other", "t") == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert await asyncio.to_thread(code_of_join, "mine", "hidden") == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_pod_does_not_start_without_its_acls(tmp_path: Path, acls: AclFile) -> None:
    acls.write_text('{"acls": [{"principal": "alice", "operation": "READ", "resource": "GROUP", "name": "g"}]}')
    pod = SoloPod(tmp_path / "data", config=[f"muster.acls.file={acls.path}"])
    with pytest.raises(AssertionError, match=r"muster\.acls\.file: .*acls\[0\]\.principal 'alice'"):
        await pod.__aenter__()
