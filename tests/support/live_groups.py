"""Groups that consume and commit all the time, of several client libraries, and what they see of their coordinator."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaError

COMMIT_EVERY_S = 0.05
SESSION_MS = 20_000


class Member:
    """The only member of its group. `values`: what it was given. `revoked`: how often partitions were taken from it.
    `commits`: those that were acknowledged. `errors`: those that were not. `longest_s`: the longest that one took."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.values: list[str] = []
        self.revoked = self.commits = 0
        self.longest_s = 0.0
        self.errors: list[str] = []
        self.assigned = False
        self.stopped = threading.Event()

    def __repr__(self) -> str:
        return (
            f"<{self.group}: {len(self.values)} records, {self.commits} commits, revoked {self.revoked}, {self.errors}>"
        )

    def run(self) -> None:
        """Runs until `stopped`."""
        raise NotImplementedError

    def commit(self, commit: Callable[[], object]) -> None:
        begun_s = time.monotonic()
        try:
            commit()
        except Exception as error:
            self.errors.append(repr(error))
        else:
            self.commits += 1
        self.longest_s = max(self.longest_s, time.monotonic() - begun_s)


class Confluent(Member):
    """librdkafka."""

    PROTOCOL: ClassVar[dict[str, Any]] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **self.PROTOCOL,
            }
        )
        consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self.stopped.is_set():
            found = [each for each in consumer.consume(100, COMMIT_EVERY_S) if each.error() is None]
            self.values += [each.value().decode() for each in found]
            if found:
                ends = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
                self.commit(lambda ends=ends: self._commit(consumer, ends))  # type: ignore[misc]
        consumer.close()

    @staticmethod
    def _commit(consumer: Consumer, ends: list[TopicPartition]) -> None:
        for each in consumer.commit(offsets=ends, asynchronous=False):
            if each.error is not None:
                raise KafkaException(each.error)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = True

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += not self.stopped.is_set()


class Modern(Confluent):
    """librdkafka with the consumer protocol (KIP-848), where the coordinator says how often heartbeats come."""

    PROTOCOL: ClassVar[dict[str, Any]] = {"group.protocol": "consumer"}


class Pure(Member, ConsumerRebalanceListener):  # type: ignore[misc]
    """kafka-python. Its listener hears of every rebalance, of the first as well."""

    def run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            value_deserializer=bytes.decode,
        )
        consumer.subscribe([self.topic], listener=self)
        while not self.stopped.is_set():
            try:
                found = consumer.poll(timeout_ms=int(COMMIT_EVERY_S * 1000))
            except KafkaError as error:  # nobody listens at any address that it knows
                self.errors.append(repr(error))
                continue
            self.values += [each.value for records in found.values() for each in records]
            if found:
                self.commit(consumer.commit)
        consumer.close(autocommit=False)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked += bool(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned = True


class Aio(Member):
    """aiokafka."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        member = self

        class Listener(AioListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                member.revoked += bool(revoked)

            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.assigned = True

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )
        consumer.subscribe([self.topic], listener=Listener())
        await consumer.start()
        while not self.stopped.is_set():
            found = await consumer.getmany(timeout_ms=int(COMMIT_EVERY_S * 1000))
            self.values += [each.value.decode() for records in found.values() for each in records]
            if found:
                begun_s = time.monotonic()
                try:
                    await consumer.commit()
                    self.commits += 1
                except Exception as error:
                    self.errors.append(repr(error))
                self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
        await consumer.stop()


@contextmanager
def running(members: Sequence[Member]) -> Iterator[None]:
    """Each consumes and commits while this is entered."""
    with ExitStack() as stack:
        for member in members:
            thread = threading.Thread(target=member.run, daemon=True)
            thread.start()
            stack.callback(thread.join, 30)
            stack.callback(member.stopped.set)
        yield


class LiveGroups:
    """A group of one member for each library, and a producer of numbered records. A context manager."""

    KINDS = (Confluent, Pure, Aio)

    def __init__(self, bootstrap: str, topic: str, prefix: str, kinds: Sequence[type[Member]] = KINDS) -> None:
        self.members = [kind(bootstrap, f"{prefix}{kind.__name__.lower()}", topic) for kind in kinds]
        self.produced = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._done = threading.Event()
        self._threads = [threading.Thread(target=each.run, daemon=True) for each in self.members]
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> LiveGroups:
        for each in (*self._threads, self._feeder):
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._feeder.join(30)
        for each in self.members:
            each.stopped.set()
        for thread in self._threads:
            thread.join(30)

    def stop_feeding(self) -> None:
        """Returns when all that was produced is acknowledged."""
        self._done.set()
        self._feeder.join(30)

    @property
    def values(self) -> list[str]:
        """The values that each group should have been given."""
        return [str(number) for number in range(self.produced)]

    def _feed(self) -> None:
        while not self._done.wait(0.01):
            self._producer.produce(self._topic, str(self.produced))
            self.produced += 1
            self._producer.poll(0)
        assert self._producer.flush(20) == 0
