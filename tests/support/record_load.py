"""Numbered records through a cluster's front, and a consumer of a group that takes note of each."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.muster_cluster import wait_until

WAIT_S = 180.0
PAUSE_S = 0.01
"""Between two records: the test is about none being lost, and the machine is shared."""


class RecordLoad:
    """Produces and consumes while it is entered; at the end all that was acknowledged is waited for."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.assignments = 0
        """How often the consumer got partitions: once, unless its group was rebalanced."""
        self._topic = topic
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._group = group
        self._acknowledged: list[int] = []
        self._received: list[int] = []
        self._failures: list[str] = []
        self._end_producing, self._end_consuming = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]

    def __enter__(self) -> RecordLoad:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        producing, consuming = self._threads
        self._end_producing.set()
        producing.join(WAIT_S)
        if error is None:
            wait_until(lambda: len(self._received) >= len(self._acknowledged), "all records are received", WAIT_S)
        self._end_consuming.set()
        consuming.join(WAIT_S)

    def acknowledged(self) -> list[int]:
        """Numbers, sorted. A number that was not acknowledged is a failure."""
        assert self._failures == []
        return sorted(self._acknowledged)

    def received(self) -> list[int]:
        """Numbers, sorted; one that came twice is there twice."""
        return sorted(self._received)

    def wait_received(self, count: int) -> None:
        wait_until(lambda: len(self._received) >= count, f"{count} records are received", WAIT_S)

    def goes_on(self, more: int) -> None:
        """As many records more arrive."""
        self.wait_received(len(self._received) + more)

    def _produce(self) -> None:
        producer = Producer({**self._settings, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        number = 0

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failures.append(str(error))
            else:
                self._acknowledged.append(int(message.value() or b""))

        while not self._end_producing.is_set():
            producer.produce(self._topic, value=str(number), on_delivery=delivered)
            number += 1
            producer.poll(0)
            time.sleep(PAUSE_S)
        if producer.flush(WAIT_S):
            self._failures.append("records are not acknowledged in time")

    def _consume(self) -> None:
        consumer = Consumer({**self._settings, "group.id": self._group, "auto.offset.reset": "earliest"})

        def assigned(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            self.assignments += 1

        consumer.subscribe([self._topic], on_assign=assigned)
        while not self._end_consuming.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._received.append(int(message.value() or b""))
        consumer.close()
