"""A member of a group, or a producer of numbered records, with one of the Python clients; see group_members.py.

python -m tests.support.python_member LIBRARY produce BOOTSTRAP TOPIC FIRST COUNT
python -m tests.support.python_member LIBRARY consume BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS POLL_MS [INSTANCE]

The member of librdkafka reads lines of its standard input: "commit OFFSET" commits it for all that it has, "pause MS"
sleeps for that time and then commits.
"""

from __future__ import annotations

import asyncio
import queue
import signal
import sys
import threading
import time
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


def _said(what: str, partitions: list[confluent_kafka.TopicPartition]) -> None:
    for each in partitions:
        say(what, time.time_ns() // 1_000_000, each.topic, each.partition)


def _given(_: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
    say("assigned", len(partitions))
    _said("given", partitions)


def _answer(consumer: confluent_kafka.Consumer, asked: str) -> None:
    what, number = asked.split()
    offset = int(number) if what == "commit" else 0
    had = [confluent_kafka.TopicPartition(each.topic, each.partition, offset) for each in consumer.assignment()]
    if what == "pause":
        say("paused", time.time_ns() // 1_000_000)
        time.sleep(int(number) / 1_000)
    try:
        consumer.commit(offsets=had, asynchronous=False)
        say("committed")
    except confluent_kafka.KafkaException as refused:
        say("refused", refused.args[0].name())


def librdkafka_consume(
    bootstrap: str, topic: str, group: str, assignor: str, session_ms: int, poll_ms: int, instance: str | None
) -> None:
    stop = Stop()
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: [asked.put(line) for line in sys.stdin], daemon=True).start()
    classic = {
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "max.poll.interval.ms": poll_ms,
        "topic.metadata.refresh.interval.ms": 1_000,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        **({"group.protocol": "consumer"} if assignor == "consumer" else classic),
    }
    consumer = confluent_kafka.Consumer(settings | ({"group.instance.id": instance} if instance else {}))
    consumer.subscribe(
        [topic],
        on_assign=_given,
        on_revoke=lambda _, partitions: _said("taken", partitions),
        on_lost=lambda _, partitions: _said("lost", partitions),
    )
    while not stop.is_set:
        if not asked.empty():
            _answer(consumer, asked.get())
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
    bootstrap: str, topic: str, group: str, assignor: str, session_ms: int, poll_ms: int, instance: str | None
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
        max_poll_interval_ms=poll_ms,
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
    bootstrap: str, topic: str, group: str, assignor: str, session_ms: int, poll_ms: int, instance: str | None
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
            max_poll_interval_ms=poll_ms,
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
        group, assignor, session_ms, poll_ms, *instance = words
        times = int(session_ms), int(poll_ms)
        globals()[f"{name}_consume"](bootstrap, topic, group, assignor, *times, *instance or (None,))


if __name__ == "__main__":
    main(*sys.argv[1:])
