"""Producers of both transaction versions, in Kafka's bytes, against pods that are killed after each step.

What must hold after every transaction: the committed offset is that of the last transaction that was answered as
committed, no pair of producer id and epoch comes again, and nothing stays open. `make kill-transactions` kills 50 times
at each step.
"""

from __future__ import annotations

import asyncio
import datetime
import os
from typing import Any

import pytest
from tests.support.kafka import KafkaClient, entity, schema
from tests.support.pod import PodProcess
from tests.support.transaction_pods import TransactionPods

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("KILLS", "1"))
"""At each step, of each of the two pods, in each transaction version."""
STEPS = ("init", "add", "commit of offsets", "decision", "prepare", "marker", "complete")
"""The last thing that was done when a pod is killed. "add" is of version 1 alone: version 2 adds a group with the
commit of its offsets. "decision": EndTxn is answered; "prepare": and the marker cannot be delivered, because the pod of
the groups is gone; "marker": the group shows the end; "complete": the transaction too.
"""
PATIENCE_S = 60.0
# Kafka's codes for what is over soon: the coordinator loads, is elsewhere, is not known yet; a transaction is ending.
PASSING = frozenset({14, 15, 16, 51})
MIN_OFFSET = -1


class Producer:
    """`version`: 1 or 2, the transaction version. It asks again while an error passes, on a new connection."""

    def __init__(self, pods: TransactionPods, version: int) -> None:
        self.pods, self.version = pods, version
        self.name = f"tx-{version}"
        self.group = f"g-{version}"
        self.producer = (-1, -1)
        self.given: set[tuple[int, int]] = set()
        self._clients: dict[str, KafkaClient] = {}

    async def init(self) -> None:
        request = entity("init_producer_id", 4)(
            transactional_id=self.name,
            transaction_timeout=datetime.timedelta(minutes=1),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await self.ask(self.pods.coordinator, request, lambda found: found.error_code)
        self._take(answer)

    def _take(self, answer: Any) -> None:
        self.producer = (int(answer.producer_id), int(answer.producer_epoch))
        assert self.producer not in self.given, "a pair of id and epoch was given twice"
        self.given.add(self.producer)

    async def add_offsets(self) -> None:
        """Version 2 does that with the commit of the offsets."""
        if self.version == 1:
            add = entity("add_offsets_to_txn", 3)(
                transactional_id=self.name,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                group_id=self.group,
            )
            await self.ask(self.pods.coordinator, add, lambda found: found.error_code)

    async def commit_offsets(self, offset: int) -> None:
        m = schema("txn_offset_commit", 3 if self.version == 1 else 5)
        partition = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        commit = m.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(m.TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
        )
        await self.ask(self.pods.groups, commit, lambda found: found.topics[0].partitions[0].error_code)

    async def end(self, committed: bool) -> None:
        request = entity("end_txn", 3 if self.version == 1 else 5)(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=committed,
        )
        answer = await self.ask(self.pods.coordinator, request, lambda found: found.error_code)
        if self.version == 2:
            self._take(answer)

    async def committed(self) -> int:
        """Of the group, as soon as no transaction is open there (KIP-447)."""
        m = schema("offset_fetch", 7)
        request = m.OffsetFetchRequest(
            group_id=self.group,
            topics=(m.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),),
            require_stable=True,
        )
        unstable = {88}

        def code(found: Any) -> int:
            of_partition = int(found.topics[0].partitions[0].error_code) if found.topics else 0
            return int(found.error_code) or (16 if of_partition in unstable else of_partition)

        answer = await self.ask(self.pods.groups, request, code)
        return int(answer.topics[0].partitions[0].committed_offset)

    async def state(self) -> str:
        request = entity("describe_transactions", 0)(transactional_ids=(self.name,))
        answer = await self.ask(self.pods.coordinator, request, lambda found: found.transaction_states[0].error_code)
        return str(answer.transaction_states[0].transaction_state)

    async def ask(self, pod: PodProcess, request: Any, code_of: Any) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if pod.name not in self._clients:
                        self._clients[pod.name] = await KafkaClient.connect(pod.kafka_port)
                    answer = await self._clients[pod.name].call(request)
                except (OSError, EOFError):
                    await self._forget(pod.name)
                    await asyncio.sleep(0.01)
                    continue
                code = int(code_of(answer))
                if code not in PASSING:
                    assert code == 0, f"{type(request).__name__}: {code}"
                    return answer
                await asyncio.sleep(0.01)

    async def _forget(self, pod: str) -> None:
        client = self._clients.pop(pod, None)
        if client is not None:
            await client.close()

    async def close(self) -> None:
        for name in tuple(self._clients):
            await self._forget(name)

    async def until(self, *states: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.state()) not in states:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("step", "version"), [(step, version) for step in STEPS for version in (1, 2) if (step, version) != ("add", 2)]
)
async def test_offsets_are_those_of_the_transactions_that_were_committed(
    transaction_pods: TransactionPods, step: str, version: int
) -> None:
    pods, expected = transaction_pods, MIN_OFFSET
    producer = Producer(pods, version)
    for number in range(2 * KILLS):
        victim = (pods.groups, pods.coordinator)[number % 2]
        committed, offset = number % 3 != 1, 100 + number
        expected = offset if committed else expected
        await producer.init()
        if step == "init":
            await pods.restart(victim)
        await producer.add_offsets()
        if step == "add":
            await pods.restart(victim)
        await producer.commit_offsets(offset)
        if step == "commit of offsets":
            await pods.restart(victim)
        if step == "prepare":
            pods.groups.kill()
        await producer.end(committed)
        if step == "decision":
            await pods.restart(victim)
        if step == "prepare":
            assert await producer.state() == ("PrepareCommit" if committed else "PrepareAbort")
            await pods.restart(*dict.fromkeys((pods.groups, victim)))
        assert await producer.committed() == expected
        if step == "marker":
            await pods.restart(victim)
        await producer.until("CompleteCommit", "CompleteAbort")
        if step == "complete":
            await pods.restart(victim)
            await producer.until("CompleteCommit", "CompleteAbort")
        assert await producer.committed() == expected
    await producer.close()


async def test_transaction_ends_when_its_time_is_over_and_its_producer_cannot_commit_it(
    transaction_pods: TransactionPods,
) -> None:
    producer = Producer(transaction_pods, 2)
    request = entity("init_producer_id", 4)(
        transactional_id=producer.name,
        transaction_timeout=datetime.timedelta(milliseconds=500),
        producer_id=-1,
        producer_epoch=-1,
    )
    producer._take(await producer.ask(transaction_pods.coordinator, request, lambda found: found.error_code))
    await producer.commit_offsets(5)
    await producer.until("CompleteAbort")
    assert await producer.committed() == MIN_OFFSET
    with pytest.raises(AssertionError, match="EndTxnRequest: 48"):
        await producer.end(True)
    await producer.close()


async def test_second_instance_of_version_2_fences_the_first(transaction_pods: TransactionPods) -> None:
    first, second = Producer(transaction_pods, 2), Producer(transaction_pods, 2)
    await first.init()
    await first.commit_offsets(5)
    await second.init()
    with pytest.raises(AssertionError, match=r"EndTxnRequest: (47|90)"):
        await first.end(True)
    await second.commit_offsets(7)
    await second.end(True)
    assert await second.committed() == 7
    await first.close()
    await second.close()
