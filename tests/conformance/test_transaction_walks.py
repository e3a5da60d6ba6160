"""Random walks of producers over transactional ids: the state machine answers what a Kafka broker answers.

One walk runs against both. Producer ids are compared by the order in which they appear. After each step both have
written their markers: what a producer is told meanwhile depends on a moment that nobody can choose.
"""

from __future__ import annotations

import asyncio
import datetime
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.unit.transactions.harness import GROUP_IN, NO_PRODUCER, OFFSETS, PARTITIONS, Harness, Producer

from muster_coordinator.records.transaction_log import TransactionStatus
from muster_coordinator.requests import transactions as m

WALKS = 40
STEPS = 30
TIMEOUT_MS = 60_000
WAIT_S = 30.0
LAST_EPOCH = 0x7FFF
"""No client gets it: the producer id is replaced before."""

Outcome = tuple[Any, ...]


class Broker:
    """Kafka, asked through its protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client

    async def init(self, name: str, producer: Producer) -> Outcome:
        request = schema("init_producer_id", 5).InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout=datetime.timedelta(milliseconds=TIMEOUT_MS),
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer = await self.client.call(request)
        return int(answer.error_code), answer.producer_id, answer.producer_epoch

    async def bump(self, name: str, epochs: int) -> None:
        """So many producers come, one after the other."""
        s = schema("init_producer_id", 5)
        request = s.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout=datetime.timedelta(milliseconds=TIMEOUT_MS),
            producer_id=-1,
            producer_epoch=-1,
        )
        response = schema("init_producer_id", 5, "response").InitProducerIdResponse
        for start in range(0, epochs, 500):
            count = min(500, epochs - start)
            for _ in range(count):
                self.client.send(request)
            for number in range(count):
                _, answer = await self.client.receive(response)
                assert (int(answer.error_code), answer.producer_epoch) == (0, start + number + 1)

    async def add(self, name: str, producer: Producer, partition: int, version: int) -> Outcome:
        """By AddOffsetsToTxn, or as a broker does for a client of transaction version 2."""
        if version < 4:
            request = schema("add_offsets_to_txn", version).AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=GROUP_IN[partition]
            )
            return (int((await self.client.call(request)).error_code),)
        s = schema("add_partitions_to_txn", version)
        transaction = s.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=False,
            topics=(s.AddPartitionsToTxnTopic(name=OFFSETS, partitions=(partition,)),),
        )
        answer = await self.client.call(s.AddPartitionsToTxnRequest(transactions=(transaction,)))
        (topic,) = answer.results_by_transaction[0].topic_results
        return (int(topic.results_by_partition[0].partition_error_code),)

    async def end(self, name: str, producer: Producer, committed: bool, version: int) -> Outcome:
        answer = await self.client.call(
            schema("end_txn", version).EndTxnRequest(
                transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
            )
        )
        code = int(answer.error_code)
        return (code, answer.producer_id, answer.producer_epoch) if version >= 5 else (code, *NO_PRODUCER)

    async def describe(self, name: str) -> Outcome:
        """State, producer id, and in a transaction epoch and partitions, when the markers are written. kio cannot read
        the start time of an id without a transaction, so that is only listed."""
        listing = schema("list_transactions", 1).ListTransactionsRequest(
            state_filters=(), producer_id_filters=(), duration_filter=-1
        )
        async with asyncio.timeout(WAIT_S):
            while True:
                listed = await self.client.call(listing)
                found = {each.transactional_id: each for each in listed.transaction_states}[name]
                if not found.transaction_state.startswith("Prepare"):
                    break
                await asyncio.sleep(0.002)
        if found.transaction_state == "Empty":
            return found.transaction_state, found.producer_id
        request = schema("describe_transactions", 0).DescribeTransactionsRequest(transactional_ids=(name,))
        (one,) = (await self.client.call(request)).transaction_states
        partitions = tuple(sorted(p for topic in one.topics for p in topic.partitions))
        return one.transaction_state, one.producer_id, one.producer_epoch, partitions


class Ours:
    """The state machine, whose markers are written at once."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    def init(self, name: str, producer: Producer) -> Outcome:
        answer = self.harness.init(name, producer, TIMEOUT_MS)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def add(self, name: str, producer: Producer, partition: int, version: int) -> Outcome:
        return (self.harness.add(producer, partition, transactional_id=name, version=version),)

    def end(self, name: str, producer: Producer, committed: bool, version: int) -> Outcome:
        return self.harness.end(producer, committed, transactional_id=name, version=version)

    def describe(self, name: str) -> Outcome:
        self.harness.finish()
        found = self.harness.send(m.DescribeTransactionRequest(name))
        assert isinstance(found, m.DescribedTransaction)
        if found.state == "Empty":
            return found.state, found.producer_id
        partitions = tuple(sorted(p for _, indexes in found.topics for p in indexes))
        return found.state, found.producer_id, found.producer_epoch, partitions


class Walk:
    """`pairs`: the producers that both have answered, ours and the broker's."""

    def __init__(self, broker: Broker, name: str, seed: int) -> None:
        self.broker, self.ours, self.name = broker, Ours(Harness()), name
        self.chance = random.Random(seed)
        self.pairs: list[tuple[Producer, Producer]] = []
        self.ids: dict[int, int] = {-1: -1}  # producer ids of the broker -> ours
        self.trail: list[str] = []

    async def run(self, first_epoch: int = 0) -> None:
        """`first_epoch`: the producer has this epoch when the walk begins."""
        await self._both("init", *self._nobody())
        if first_epoch:
            (ours, theirs) = self.pairs.pop()
            await self.broker.bump(self.name, first_epoch)
            value = replace(self.ours.harness.value(self.name), producer_epoch=first_epoch)
            self.ours.harness.put(value, self.name)
            self.pairs.append(((ours[0], first_epoch), (theirs[0], first_epoch)))
        for _ in range(STEPS):
            kind = self.chance.choices(("init", "add", "end"), (3, 4, 5))[0]
            if kind == "init":
                await self._both("init", *(self._nobody() if self.chance.random() < 0.3 else self._somebody()))
            elif kind == "add":
                version = self.chance.choice((3, 5))
                await self._both("add", *self._somebody(), self.chance.randrange(PARTITIONS), version)
            else:
                version, committed = self.chance.choice((4, 5)), self.chance.random() < 0.5
                ours, theirs = self._somebody()
                if version == 4 or not self._is_fenced_here_only(ours):
                    await self._both("end", ours, theirs, committed, version)

    def _is_fenced_here_only(self, producer: Producer) -> bool:
        """A producer of transaction version 2, by one of version 1 that has ended a transaction in the next epoch: the
        broker takes its EndTxn for a repetition, and gives it that epoch."""
        value = self.ours.harness.value(self.name)
        complete = value.status in (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
        return complete and value.client_version < 2 and producer == (value.producer_id, value.producer_epoch - 1)

    @staticmethod
    def _nobody() -> tuple[Producer, Producer]:
        return NO_PRODUCER, NO_PRODUCER

    def _somebody(self) -> tuple[Producer, Producer]:
        """The producer that was answered last, an earlier one, or one that is ahead."""
        ours, theirs = self.pairs[-1] if self.chance.random() < 0.7 else self.chance.choice(self.pairs)
        ahead = self.chance.random() < 0.1
        return (ours[0], ours[1] + ahead), (theirs[0], theirs[1] + ahead)

    async def _both(self, kind: str, ours: Producer, theirs: Producer, *more: Any) -> None:
        self.trail.append(f"{kind} {ours} {more}")
        expected = await getattr(self.broker, kind)(self.name, theirs, *more)
        got = getattr(self.ours, kind)(self.name, ours, *more)
        self._compare(got, expected)
        if kind != "add" and got[0] == 0 and got[1] != -1:
            self.pairs.append(((got[1], got[2]), (expected[1], expected[2])))
        self._compare(self.ours.describe(self.name), await self.broker.describe(self.name))

    def _compare(self, got: Outcome, expected: Outcome) -> None:
        """The broker's producer ids, which stand second, are named as ours."""
        if len(expected) > 1:
            named = self.ids.setdefault(expected[1], got[1])
            expected = (expected[0], named, *expected[2:])
        assert got == expected, "\n".join(self.trail)
        self.trail[-1] += f" -> {got}"


async def coordinator_is_there(broker: Broker) -> None:
    """The first producer makes the broker create its topic."""
    async with asyncio.timeout(WAIT_S):
        while (await broker.init("first", NO_PRODUCER))[0]:
            await asyncio.sleep(0.1)


@pytest.mark.integration
@pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet())
@pytest.mark.timeout(300)
async def test_producers_are_answered_as_by_a_broker(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": str(PARTITIONS)}
    async with KafkaBroker(tmp_path, settings, {"t": 1}) as running:
        client = await KafkaClient.connect(running.port)
        await coordinator_is_there(Broker(client))
        for seed in range(WALKS):
            await Walk(Broker(client), f"tx-{seed}", seed).run()
        await Walk(Broker(client), "used-up", 0).run(first_epoch=LAST_EPOCH - 3)
        await client.close()
