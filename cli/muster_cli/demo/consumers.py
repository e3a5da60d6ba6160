"""Kafka clients of the demo (confluent-kafka, on librdkafka), each in a thread of its own.

They read no data, because the topic exists only as a declaration to the coordinator. They do what a consumer does with
its coordinator: join, heartbeat, fetch the offset at which to resume, commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

COMMIT_EVERY_S = 0.05

# Short waits, where librdkafka lets one choose, so that the demo is about the coordinator.
_CLIENT = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 300,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "socket.timeout.ms": 2000,
    "log_level": 0,
}


def client(bootstrap: str, group: str, client_id: str) -> Consumer:
    return Consumer({**_CLIENT, "bootstrap.servers": bootstrap, "group.id": group, "client.id": client_id})


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: int, timeout_s: float) -> dict[int, int]:
    """Partition -> committed offset, as a new client gets it, without partitions that have none."""
    fresh = client(bootstrap, group, "observer")
    try:
        return _committed(fresh, [TopicPartition(topic, partition) for partition in range(partitions)], timeout_s)
    finally:
        fresh.close()


def _committed(consumer: Consumer, asked: Sequence[TopicPartition], timeout_s: float) -> dict[int, int]:
    """Asks again where a retry mends the error: librdkafka gives NOT_COORDINATOR to its caller, so that a coordinator
    that moves between the two requests would end the caller. Raises KafkaException.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            answer = consumer.committed(list(asked), timeout=max(deadline - time.monotonic(), 0.0))
        except KafkaException as error:
            if error.args[0].code() not in _RETRY or time.monotonic() > deadline:
                raise
            time.sleep(COMMIT_EVERY_S)
        else:
            return {each.partition: each.offset for each in answer if each.offset >= 0}


class GroupConsumer(threading.Thread):
    """A member of a group: commits a rising offset for each partition that is assigned to it.

    Its mappings are partition -> offset. They are replaced, never changed, so that other threads can read them.
    `error`: the exception that ended it, if there was one.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.error: Exception | None = None
        self.assigned: tuple[int, ...] = ()
        self.resumed: Mapping[int, int] = {}
        """The committed offsets when the partitions were assigned to this member."""
        self.acknowledged: Mapping[int, int] = {}
        """The highest offset with an acknowledged commit."""
        self.attempted: Mapping[int, int] = {}
        """The highest offset for which a commit was sent."""
        self._acknowledged_at: list[float] = []
        self._topic = topic
        self._consumer = client(bootstrap, group, name)
        self._stopping = threading.Event()

    def acknowledged_after(self, moment: float) -> list[float]:
        """The times of acknowledged commits after a moment, both in seconds of the monotonic clock."""
        return [each for each in self._acknowledged_at if each > moment]

    def stop(self) -> None:
        """Leave the group, and end."""
        self._stopping.set()
        self.join(timeout=10)

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.error = error
        finally:
            self._consumer.close()

    def _work(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self._stopping.is_set():
            self._consumer.poll(COMMIT_EVERY_S)
            offsets = {partition: self.acknowledged.get(partition, 0) + 1 for partition in self.assigned}
            if offsets:
                self.attempted = {**self.attempted, **offsets}
                if self._commit(offsets):
                    self.acknowledged = {**self.acknowledged, **offsets}

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.resumed = _committed(consumer, partitions, timeout_s=5)
        self.acknowledged = dict(self.resumed)
        self.attempted = dict(self.resumed)
        self.assigned = tuple(sorted(each.partition for each in partitions))

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.assigned = ()

    def _commit(self, offsets: Mapping[int, int]) -> bool:
        """One synchronous commit. False: try again. Raises KafkaException for errors that no retry mends."""
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            answer = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in _RETRY:
                return False
            raise
        if answer is None or any(each.error is not None for each in answer):
            return False
        self._acknowledged_at.append(time.monotonic())
        return True


_RETRY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._STATE,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
