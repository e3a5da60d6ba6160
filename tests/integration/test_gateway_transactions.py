"""Exactly once through the gateway: Kafka coordinates the transactions, Muster has the group's offsets."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.support.kafka_broker import group_command, run_tool, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]

GROUP, INPUT, OUTPUT, PARTITIONS = "transformers", "in", "out", 2
RECORDS, BATCH, ABORTED = 2000, 50, 0.2
KILLS = int(os.environ.get("KILLS", "2"))
DEADLINE_S = 180.0
KEEPS_NODES = {"metadata.recovery.strategy": "none"}
"""By default librdkafka forgets all nodes when its last connection breaks, as when the gateway is killed, and then
waits for one of them for good (its issue 5511, docs/failures.md)."""


def use_a_group(bootstrap: str) -> None:
    """Kafka makes the topic for markers when it is first asked for a group's coordinator."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first", "log_level": 0})
    committed(consumer, [TopicPartition(INPUT, 0)])
    consumer.close()


def committed(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Asks again while the group has no coordinator that answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.committed(partitions, timeout=10)
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(INPUT, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


class Transformer:
    """Consumes, produces and commits in transactions until all of the input is committed. One in five is aborted, and
    so is each that met an error."""

    def __init__(self, bootstrap: str) -> None:
        self.committed = self.aborted = self.errors = 0
        self._bootstrap = bootstrap
        self._chance = random.Random(5)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([INPUT])
        self._producer = self._new_producer()

    def run(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self._done() < RECORDS:
            assert time.monotonic() < deadline, f"{self._done()} of {RECORDS} after {DEADLINE_S} s"
            try:
                self._transaction()
            except KafkaException as error:
                self.errors += 1
                self._recover(error)
        self._consumer.close()

    def _transaction(self) -> None:
        messages = [each for each in self._consumer.consume(BATCH, 0.5) if each.error() is None]
        if not messages:
            return
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(OUTPUT, message.value())
        positions = [each for each in self._consumer.position(self._consumer.assignment()) if each.offset >= 0]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, metadata, 20)
        if self._chance.random() < ABORTED:
            self._producer.abort_transaction(20)
            self.aborted += 1
            self._rewind()
        else:
            self._producer.commit_transaction(20)
            self.committed += 1

    def _recover(self, error: KafkaException) -> None:
        try:
            if error.args[0].fatal():
                raise error
            self._producer.abort_transaction(20)
        except KafkaException:
            self._producer = self._new_producer()  # it fences the one before, and ends its transaction
        self._rewind()

    def _new_producer(self) -> Producer:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "transformer", "log_level": 0}
        producer = Producer(settings | KEEPS_NODES)
        producer.init_transactions(30)
        return producer

    def _rewind(self) -> None:
        """Back to what is committed."""
        assignment = self._consumer.assignment()
        for each in committed(self._consumer, assignment):
            self._consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def _done(self) -> int:
        partitions = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
        return sum(max(each.offset, 0) for each in committed(self._consumer, partitions))


def output(bootstrap: str) -> Counter[str]:
    """Values in the output, as a reader of committed records sees them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings | KEEPS_NODES, error_cb=lambda error: print(f"reader at {bootstrap}: {error}"))
    consumer.assign([TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)])
    found: Counter[str] = Counter()
    began_s = quiet_since = time.monotonic()
    # The last markers may come some time after the last commit was answered. Three seconds more show what is twice.
    while time.monotonic() < max(quiet_since + 3, began_s + (60 if len(found) < RECORDS else 0)):
        for message in consumer.consume(500, 0.2):
            assert message.error() is None
            found[(message.value() or b"").decode()] += 1
            quiet_since = time.monotonic()
    consumer.close()
    return found


async def test_each_record_is_transformed_once_also_when_the_gateway_is_killed(tmp_path: Path) -> None:
    topics = {INPUT: PARTITIONS, OUTPUT: PARTITIONS}
    options = ["--partitions", "5", "--config", "group.initial.rebalance.delay.ms=100", "--gateway-port", "0"]
    async with KafkaCluster(tmp_path / "kafka", topics, brokers=1) as kafka:
        await asyncio.to_thread(use_a_group, kafka.bootstrap)
        with LocalCluster(tmp_path / "muster", *options, "--upstream", kafka.bootstrap) as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            bootstrap = line.split()[1].removeprefix("bootstrap=")
            await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
            await asyncio.to_thread(fill, bootstrap)
            transformer = Transformer(bootstrap)
            running = asyncio.create_task(asyncio.to_thread(transformer.run))
            for number in range(KILLS):
                wanted = 5 * (number + 1)
                await asyncio.to_thread(
                    wait_until,
                    lambda wanted=wanted: transformer.committed >= wanted or running.done(),
                    "transactions",
                    DEADLINE_S,
                )
                os.kill(muster.run_record()["gateway"]["pid"], signal.SIGKILL)
            await running
            found = await asyncio.to_thread(output, kafka.bootstrap)
            through_gateway = await asyncio.to_thread(output, bootstrap)
            code, listed = await run_tool(*group_command(kafka.bootstrap, ["--list"]))
    print(f"{transformer.committed} committed, {transformer.aborted} aborted, {transformer.errors} errors")
    assert (code, GROUP in listed.split()) == (0, False), listed
    assert {value: count for value, count in found.items() if count != 1} == {}
    assert {str(number) for number in range(RECORDS)} - found.keys() == set(), "records that are in no output"
    assert through_gateway == found, "a reader through the gateway sees other records than one at Kafka"
    assert transformer.aborted > 0
