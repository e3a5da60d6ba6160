"""Transactions of real producers over two groups each, and plain commits, with what their clients know of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

CALL_S = 60.0
TRANSACTION_S = 60.0
AT_A_MOVE = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
    }
)
"""Answers to a commit while a leadership moves, as it may whenever a busy machine lets a lease end. librdkafka repeats
what belongs to a transaction, and leaves other commits to their caller."""
NO_OFFSET = -1001
TOPIC = "orders"


@dataclass(frozen=True)
class Known:
    """The knowledge of one client at a moment: `acked` is committed, `begun` may be. Later, offsets between them
    are allowed."""

    acked: int
    begun: int


def client(bootstrap: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0})


class Load:
    """Runs in threads until `stop`. Client `n` commits rising offsets, from the one after `start` on: in a transaction
    to the groups `first-n` and `second-n`, whose partitions differ mostly; without one to `plain-n`; or each offset to
    a group of its own, `fresh-n-OFFSET`. Every third transaction is aborted."""

    def __init__(self, bootstrap: str, transactions: int, plain: int, *, fresh: int = 0, start: int = 0) -> None:
        self._bootstrap = bootstrap
        self._start = start
        self._ended = threading.Event()
        self._acked: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self.failures: list[BaseException] = []
        self.aborted: set[tuple[str, int]] = set()
        names = [f"tx-{number}" for number in range(transactions)]
        self._threads = [threading.Thread(target=self._run, args=(self._transactions, name)) for name in names]
        names = [f"plain-{number}" for number in range(plain)]
        self._threads += [threading.Thread(target=self._run, args=(self._plain, name)) for name in names]
        names = [f"fresh-{number}" for number in range(fresh)]
        self._threads += [threading.Thread(target=self._run, args=(self._fresh, name)) for name in names]
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> int:
        """Commits and transactions that were answered."""
        return sum(acked - self._start for acked in dict(self._acked).values())

    @property
    def rate(self) -> float:
        """Commits and committed transactions per second so far."""
        aborted = len(self.aborted)
        return (self.done - aborted) / (time.monotonic() - self._began)

    @property
    def all_committed(self) -> bool:
        """True if each client has committed something."""
        return len(dict(self._acked)) == len(self._threads)

    def known(self) -> dict[str, Known]:
        """The knowledge of each client now, by its name: `acked` is read before `begun`."""
        acked = dict(self._acked)
        return {name: Known(acked.get(name, NO_OFFSET), begun) for name, begun in dict(self._begun).items()}

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Any, name: str) -> None:
        try:
            work(name)
        except BaseException as error:
            self.failures.append(error)

    def _plain(self, name: str) -> None:
        consumer, offset = client(self._bootstrap, name), self._start
        while not self._ended.is_set():
            offset += 1
            self._begun[name] = offset
            if self._repeated(lambda: consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)):  # noqa: B023
                self._acked[name] = offset
        consumer.close()

    def _fresh(self, name: str) -> None:
        offset = self._start
        while not self._ended.is_set():
            offset += 1
            self._begun[name] = offset
            consumer = client(self._bootstrap, f"{name}-{offset}")
            if self._repeated(lambda: consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)):  # noqa: B023
                self._acked[name] = offset
            consumer.close()

    def _repeated(self, commit: Callable[[], object]) -> bool:
        """Commit until it is acknowledged. False: the load ends first."""
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                commit()
                return True
            except KafkaException as error:
                if error.args[0].code() not in AT_A_MOVE or time.monotonic() > deadline:
                    raise
            if self._ended.wait(0.05):
                return False

    def _transactions(self, name: str) -> None:
        number = name.removeprefix("tx-")
        groups = [client(self._bootstrap, f"{kind}-{number}") for kind in ("first", "second")]
        producer, offset = self._producer(name), self._start
        while not self._ended.is_set():
            offset += 1
            began = time.monotonic()
            try:
                self._transaction(name, producer, groups, offset)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._FENCED:
                    raise
                lasted = time.monotonic() - began
                if lasted < TRANSACTION_S:
                    raise AssertionError(
                        f"{name} was fenced {lasted:.1f} s after transaction {offset} began"
                    ) from error
                producer = self._producer(name)  # its time was over: Kafka aborts it and fences the producer, too
        for group in groups:
            group.close()

    def _producer(self, name: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                "log_level": 0,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(CALL_S)
        return producer

    def _transaction(self, name: str, producer: Producer, groups: list[Consumer], offset: int) -> None:
        self._begun[name] = offset
        producer.begin_transaction()
        for group in groups:
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, offset)], group.consumer_group_metadata(), CALL_S
            )
        if offset % 3:
            producer.commit_transaction(CALL_S)
            self._acked[name] = offset
        else:
            self.aborted.add((name, offset))
            producer.abort_transaction(CALL_S)


def committed(bootstrap: str, group: str) -> int:
    """The group's offset, once no transaction is about to end."""
    consumer = client(bootstrap, group)
    try:
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], CALL_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return int(found.offset)
    finally:
        consumer.close()
