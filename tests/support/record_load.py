"""Numbered records through a cluster's front, and consumers of groups that take note of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.support.muster_cluster import wait_until

WAIT_S = 180.0
PAUSE_S = 0.01
"""The pause between two records: it is about none being lost, and the machine is shared."""


class NumberedProducer:
    """Produces from `first` on until it is stopped. `login`: settings of librdkafka beside the address."""

    def __init__(self, bootstrap: str, topic: str, first: int = 0, login: Mapping[str, str] | None = None) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, **(login or {})}
        self._topic = topic
        self._first = first
        self._acknowledged: list[int] = []
        self._failures: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Everything is acknowledged, or it is a failure."""
        self._end.set()
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            self._failures.append("the producer does not end")

    def acknowledged(self) -> list[int]:
        """Numbers, sorted. A number that was refused is a failure."""
        assert self._failures == []
        return sorted(self._acknowledged)

    @property
    def count(self) -> int:
        return len(self._acknowledged)

    def _run(self) -> None:
        producer = Producer({**self._settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        number = self._first
        while not self._end.is_set():
            producer.produce(self._topic, value=str(number), on_delivery=self._delivered)
            number += 1
            producer.poll(0)
            time.sleep(PAUSE_S)
        if producer.flush(WAIT_S):
            self._failures.append("records are not acknowledged in time")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            self._acknowledged.append(int(message.value() or b""))


class NotingConsumer:
    """One member of a group, until it is stopped. It commits now and then, or `commits_each` record, which it waits
    for. `login`: settings of librdkafka beside the address."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        commits_each: bool = False,
        login: Mapping[str, str] | None = None,
    ) -> None:
        self.assignments = 0
        """Number of times that it got partitions: once, unless its group was rebalanced."""
        self.numbers: list[int] = []
        """The numbers in the order in which they came."""
        self.longest_pause_s = 0.0
        """The longest pause between two records, or their commits."""
        where = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self._settings = {**where, **(login or {})}
        self._commits_each = commits_each
        self._failures: list[str] = []
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """It leaves its group."""
        self._end.set()
        self._thread.join(WAIT_S)

    def received(self) -> list[int]:
        """Sorted; one that came twice is there twice. A commit that was refused is a failure."""
        assert self._failures == []
        return sorted(self.numbers)

    def wait_received(self, count: int) -> None:
        wait_until(lambda: len(self.numbers) >= count, f"{count} records are received", WAIT_S)

    def goes_on(self, more: int) -> None:
        """Wait until that many more records have arrived."""
        self.wait_received(len(self.numbers) + more)

    def _run(self) -> None:
        consumer = Consumer({**self._settings, "log_level": 0, "enable.auto.commit": not self._commits_each})

        def assigned(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            self.assignments += 1

        consumer.subscribe([self._topic], on_assign=assigned)
        last_s = 0.0
        while not self._end.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            if self._commits_each:
                self._commit(consumer, message)
            now = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now - last_s if last_s else 0.0)
            last_s = now
            self.numbers.append(int(message.value() or b""))
        consumer.close()

    def _commit(self, consumer: Consumer, message: Message) -> None:
        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException as error:
            self._failures.append(str(error))


class RecordLoad:
    """Produces and consumes while it is entered; at the end all that was acknowledged is waited for. `login`: settings
    of librdkafka beside the address."""

    def __init__(self, bootstrap: str, topic: str, group: str, login: Mapping[str, str] | None = None) -> None:
        self._where = (bootstrap, topic)
        self._group = group
        self._login = login

    def __enter__(self) -> RecordLoad:
        self._producer = NumberedProducer(*self._where, login=self._login)
        self._consumer = NotingConsumer(*self._where, self._group, login=self._login)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.stop()
        if error is None:
            self._consumer.wait_received(self._producer.count)
        self._consumer.stop()

    @property
    def assignments(self) -> int:
        return self._consumer.assignments

    def acknowledged(self) -> list[int]:
        return self._producer.acknowledged()

    def received(self) -> list[int]:
        return self._consumer.received()

    def wait_received(self, count: int) -> None:
        self._consumer.wait_received(count)

    def goes_on(self, more: int) -> None:
        self._consumer.goes_on(more)
