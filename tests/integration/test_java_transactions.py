"""Unchanged transactional producers of Kafka's own library, in both transaction versions."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.java_producers import JavaError, JavaProducers
from tests.support.kafka import KafkaClient, entity
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.pod import PodProcess
from tests.support.transaction_pods import TransactionPods

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

TRANSACTIONS = 30
DEADLINE_S = 60.0


class OfVersion1(PodProcess):
    program = (sys.executable, "-m", "tests.support.transaction_version_1")


@dataclass
class Java:
    pods: TransactionPods
    producers: JavaProducers
    version: int

    async def metric(self, name: str, **labels: str) -> float:
        """Of the pod with the transactions."""
        return await self.pods.coordinator.metric(name, **labels)

    async def epoch(self) -> int:
        """Of the transactional id."""
        client = await KafkaClient.connect(self.pods.coordinator.kafka_port)
        answer = await client.call(entity("describe_transactions", 0)(transactional_ids=("tx",)))
        await client.close()
        return int(answer.transaction_states[0].producer_epoch)


@pytest_asyncio.fixture(params=[1, 2])
async def java(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Java]:
    version = request.param
    pods = TransactionPods(tmp_path, OfVersion1 if version == 1 else PodProcess)
    async with pods, JavaProducers(pods.bootstrap, "g") as producers:
        yield Java(pods, producers, version)


async def test_committed_offsets_are_those_of_a_model_after_each_transaction(java: Java) -> None:
    """Commits, aborts, transactions without offsets, several offsets in one, and producers that begin anew."""
    chance, call = random.Random(java.version), java.producers.call
    expected: int | None = None
    names = iter(range(1_000))
    name = str(next(names))
    await java.producers.open(name)
    for number in range(TRANSACTIONS):
        await call("begin", name)
        offsets = [100 * number + each for each in range(chance.choice((0, 1, 1, 1, 3)))]
        for offset in offsets:
            await call("send", name, offset)
        committed = chance.random() < 0.6
        if offsets and chance.random() < 0.2:  # its successor aborts what it has left open
            name = str(next(names))
            await java.producers.open(name)
            committed = False
        else:
            await call("commit" if committed else "abort", name)
        expected = offsets[-1] if committed and offsets else expected
        assert await java.producers.committed() == expected


async def test_each_transaction_has_an_epoch_of_its_own_in_version_2_only(java: Java) -> None:
    """So the version was what the test says, and AddOffsetsToTxn came in version 1 only."""
    await java.producers.open("first")
    epochs = set()
    for offset in range(3):
        await java.producers.call("begin", "first")
        await java.producers.call("send", "first", offset)
        await java.producers.call("commit", "first")
        epochs.add(await java.epoch())
    assert len(epochs) == (1 if java.version == 1 else 3)
    asked = await java.metric("muster_requests_total", api="AddOffsetsToTxn")
    assert (asked > 0) == (java.version == 1)


async def test_second_instance_fences_the_first(java: Java) -> None:
    call = java.producers.call
    await java.producers.open("first")
    await call("begin", "first")
    await call("send", "first", 5)
    await java.producers.open("second")
    with pytest.raises(JavaError, match=r"Fenced|InvalidProducerEpoch"):
        await call("commit", "first")
    assert await java.producers.committed() is None
    await call("begin", "second")
    await call("send", "second", 7)
    await call("commit", "second")
    assert await java.producers.committed() == 7
    with pytest.raises(JavaError):
        await call("begin", "first")


async def test_transaction_whose_time_is_over_is_aborted_and_cannot_be_committed(java: Java) -> None:
    call = java.producers.call
    await java.producers.open("first", timeout_ms=500)
    await call("begin", "first")
    await call("send", "first", 5)
    async with asyncio.timeout(DEADLINE_S):
        while not await java.metric("muster_transactions_timed_out_total"):
            await asyncio.sleep(0.05)
    assert await java.producers.committed() is None
    with pytest.raises(JavaError, match=r"Fenced|InvalidProducerEpoch|Abortable|InvalidTxnState"):
        await call("commit", "first")
    await java.producers.open("second")
    await call("begin", "second")
    await call("send", "second", 7)
    await call("commit", "second")
    assert await java.producers.committed() == 7


@pytest.mark.parametrize("before_the_end", [True, False])
async def test_offsets_are_those_of_committed_transactions_though_pods_are_killed(
    java: Java, before_the_end: bool
) -> None:
    """One producer goes on over the deaths of both coordinators."""
    call = java.producers.call
    await java.producers.open("first")
    expected: int | None = None
    for number in range(4):
        victim = (java.pods.groups, java.pods.coordinator)[number % 2]
        committed = number % 3 != 1
        await call("begin", "first")
        await call("send", "first", number)
        if before_the_end:
            await java.pods.restart(victim)
        await call("commit" if committed else "abort", "first")
        if not before_the_end:
            await java.pods.restart(victim)
        expected = number if committed else expected
        assert await java.producers.committed() == expected
