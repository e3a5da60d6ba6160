"""A member of a group, or a producer of numbered records, with one of the Python clients; see group_members.py.

python -m tests.support.python_member LIBRARY produce BOOTSTRAP TOPIC FIRST COUNT
python -m tests.support.python_member LIBRARY consume BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS [INSTANCE]
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from aiokafka.errors import CommitFailedError as AioCommitFailedError
from aiokafka.errors import RebalanceInProgressError
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import CommitFailedError
from kafka.errors import RebalanceInProgressError as CommitTooEarlyError
from tests.support.kafka_python import METADATA

HEARTBEAT_MS = 500
KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
AIOKAFKA = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


class Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


def say(*words: object) -> None:
    print(*words, flush=True)


def librdkafka_produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0


def librdkafka_consume(
    bootstrap: str, topic: str, group: str, assignor: str, session_ms: int, instance: str | None
) -> None:
    stop = Stop()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings | ({"group.instance.id": instance} if instance else {}))
    consumer.subscribe([topic], on_assign=lambda _, partitions: say("assigned", len(partitions)))
    while not stop.is_set:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        say("record", (message.value() or b"").decode())
        try:
            consumer.commit(message, asynchronous=False)
        except confluent_kafka.KafkaException:
            pass  # refused: the group has rebalanced
    consumer.close()


def kafka_python_produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", **METADATA)
    for sent in [producer.send(topic, str(number).encode()) for number in numbers]:
        sent.get(60)
    producer.close()


def kafka_python_consume(
    bootstrap: str, topic: str, group: str, assignor: str, session_ms: int, instance: str | None
) -> None:
    stop = Stop()

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", len(assigned))

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        group_instance_id=instance,
        partition_assignment_strategy=[KAFKA_PYTHON[assignor]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([topic], listener=Listener())
    while not stop.is_set:
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                say("record", record.value.decode())
        try:
            consumer.commit()
        except (CommitFailedError, CommitTooEarlyError):
            pass  # refused: the group has rebalanced, or is about to
    consumer.close()


def aiokafka_produce(bootstrap: str, topic: str, numbers: range) -> None:
    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for sent in [await producer.send(topic, str(number).encode()) for number in numbers]:
                await sent

    asyncio.run(produce())


def aiokafka_consume(
    bootstrap: str, topic: str, group: str, assignor: str, session_ms: int, instance: str | None
) -> None:
    stop = Stop()

    class Listener(aiokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", len(assigned))

    async def consume() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            partition_assignment_strategy=[AIOKAFKA[assignor]],
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not stop.is_set:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    say("record", record.value.decode())
            try:
                await consumer.commit()
            except (AioCommitFailedError, RebalanceInProgressError):
                pass  # refused: the group has rebalanced
        await consumer.stop()

    asyncio.run(consume())


def main(library: str, action: str, bootstrap: str, topic: str, *words: str) -> None:
    name = library.replace("-", "_")
    if action == "produce":
        first, count = map(int, words)
        globals()[f"{name}_produce"](bootstrap, topic, range(first, first + count))
    else:
        group, assignor, session_ms, *instance = words
        globals()[f"{name}_consume"](bootstrap, topic, group, assignor, int(session_ms), *instance or (None,))


if __name__ == "__main__":
    main(*sys.argv[1:])
