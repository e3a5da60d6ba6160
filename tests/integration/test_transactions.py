"""Unchanged transactional producers against pods that serve transactions. The test plays the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.support.transaction_pods import TransactionPods

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

CALL_S = 60.0
NO_OFFSET = -1001
"""librdkafka's name for it."""

_T = TypeVar("_T")


async def in_thread(call: Callable[..., _T], *arguments: Any) -> _T:
    return await asyncio.to_thread(call, *arguments)


class Application:
    """Reads the group's offset, and copies: each transaction commits the next one."""

    def __init__(self, pods: TransactionPods, name: str = "tx") -> None:
        common = {"bootstrap.servers": pods.bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        self.producer = Producer(common | {"transactional.id": name, "transaction.timeout.ms": 60_000})
        self.consumer = Consumer(common | {"group.id": "g", "enable.auto.commit": False})

    def init(self) -> None:
        self.producer.init_transactions(CALL_S)

    def begin(self, offset: int) -> None:
        self.producer.begin_transaction()
        offsets = [TopicPartition("t", 0, offset)]
        self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), CALL_S)

    def end(self, committed: bool) -> None:
        (self.producer.commit_transaction if committed else self.producer.abort_transaction)(CALL_S)

    def committed(self) -> int:
        """Waits for transactions that are about to end (KIP-447)."""
        (found,) = self.consumer.committed([TopicPartition("t", 0)], CALL_S)
        offset: int = found.offset
        return offset

    def close(self) -> None:
        self.consumer.close()


@pytest.mark.parametrize("before_the_end", [True, False])
async def test_offsets_are_those_of_the_committed_transactions_though_pods_are_killed(
    transaction_pods: TransactionPods, before_the_end: bool
) -> None:
    """The pod with the groups, and the one with the transactions, are killed after the commit of offsets, or right
    after the decision is answered. The application then starts again, as one that has lost its coordinators may do.
    """
    expected = NO_OFFSET
    for number in range(4):
        application = Application(transaction_pods)
        await in_thread(application.init)
        offset, committed = 100 + number, number % 3 != 1
        killed = (transaction_pods.groups, transaction_pods.coordinator)[number % 2]
        await in_thread(application.begin, offset)
        if before_the_end:
            await transaction_pods.restart(killed)
        await in_thread(application.end, committed)
        if not before_the_end:
            await transaction_pods.restart(killed)
        expected = offset if committed else expected
        await until_committed(application, expected)
        application.close()


async def until_committed(application: Application, offset: int) -> None:
    async with asyncio.timeout(CALL_S):
        while await in_thread(application.committed) != offset:
            await asyncio.sleep(0.02)


async def test_second_producer_fences_the_first(transaction_pods: TransactionPods) -> None:
    first, second = Application(transaction_pods), Application(transaction_pods)
    await in_thread(first.init)
    await in_thread(first.begin, 5)
    await in_thread(second.init)
    with pytest.raises(KafkaException) as fenced:
        await in_thread(first.end, True)
    assert fenced.value.args[0].fatal()
    await in_thread(second.begin, 7)
    await in_thread(second.end, True)
    await until_committed(second, 7)
    first.close()
    second.close()


async def test_data_partition_is_refused_when_it_is_added(transaction_pods: TransactionPods) -> None:
    application = Application(transaction_pods)
    await in_thread(application.init)
    await in_thread(application.begin, 5)
    application.producer.produce("t", b"a record")
    with pytest.raises(KafkaException, match="Invalid topic") as refused:
        await in_thread(application.end, True)
    assert refused.value.args[0].txn_requires_abort()
    await in_thread(application.end, False)
    assert await in_thread(application.committed) == NO_OFFSET
    application.close()
