"""Applications that consume, produce and commit in transactions: with librdkafka, and with Kafka's own library.

One transaction in five is aborted, some are left open until their time is over, some are fenced by a second producer of
the same id. The committed offsets have to be those of a model: after a commit what was consumed, otherwise what was
there before; after an error of the commit one of the two.
"""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.support.kafka_broker import java
from tests.support.spoken import speaking

BATCH = 500
ABORTED, TIMED_OUT, FENCED = 0.2, 0.03, 0.03
"""Shares of the transactions."""
CHECKED = 0.5
"""Share of the transactions after which what is committed is asked for. That waits for their markers, and so another
transaction begins at once after the others."""
SHORT_MS, LONG_MS = 1_500, 60_000
"""transaction.timeout.ms of one that shall time out, and of others."""
CALL_S = 30.0
PATIENCE_S = 240.0
SOURCE = Path(__file__).with_name("Transformer.java")

Offsets = dict[int, int]
"""Offsets by partition of the input."""


class Transformer(Protocol):
    """`wrong`: what its model says otherwise. `errors`: those that it has recovered from, or its end.
    `counts`: committed, aborted, timed_out, fenced, errors, checked."""

    wrong: list[str]
    errors: list[str]
    counts: Counter[str]

    def finish(self, records: int) -> None:
        """The input has so many records in all; returns when all are committed."""

    def kill(self) -> None: ...


class JavaTransformer:
    def __init__(
        self, bootstrap: str, group: str, name: str, topics: tuple[str, str], seed: int, protocol: str = "classic"
    ) -> None:
        """`topics`: input and output. `protocol`: `classic`, or `consumer` (KIP-848)."""
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._process, self._thread = speaking(
            java(str(SOURCE), bootstrap, group, name, *topics, str(seed), protocol), self._read, stdin=subprocess.PIPE
        )
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, text = line.strip().partition(" ")
            if kind == "wrong":
                self.wrong.append(text)
            elif kind in ("error", "Exception", "Caused"):
                self.errors.append(line.strip())
            elif kind == "committed":
                self.counts["committed"] = int(text)
            elif kind == "done":
                self.counts = Counter({what: int(number) for what, number in re.findall(r"(\w+)=(\d+)", text)})

    def finish(self, records: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{records}\n")
        self._process.stdin.flush()
        assert self._process.wait(PATIENCE_S) == 0
        self._thread.join()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class LibrdkafkaTransformer:
    def __init__(
        self, bootstrap: str, group: str, name: str, topics: tuple[str, str], seed: int, protocol: str = "classic"
    ) -> None:
        """`topics`: input and output. `protocol`: `classic`, or `consumer` (KIP-848)."""
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._bootstrap, self._name = bootstrap, name
        self._input, self._output = topics
        self._chance = random.Random(seed)
        self._records: int | None = None
        self._killed = False
        self._known: Offsets | None = None
        self._assignments = 0
        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        settings |= {"group.protocol": protocol}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "log_level": 0, **settings}
        )
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, records: int) -> None:
        self._records = records
        self._thread.join(PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"{self._name} does not end"

    def kill(self) -> None:
        self._killed = True

    def _run(self) -> None:
        try:
            self._consumer.subscribe([self._input], on_assign=self._moved, on_revoke=self._moved)
            self._producer = self._new_producer(LONG_MS)
            while not self._killed and not self._step():
                pass
            self._consumer.close()
        except BaseException as error:
            self._failure = error
            self.errors.append(f"it has ended: {error!r}")

    def _moved(self, *_: Any) -> None:
        self._assignments += 1
        self._known = None

    def _step(self) -> bool:
        """True if everything is done."""
        messages = [each for each in self._consumer.consume(BATCH, 0.3) if each.error() is None]
        if messages:
            if self._known is None:
                self._known = self._committed(self._assigned())
            self._transaction(messages, self._known)
            return False
        if self._records is None:
            return False
        partitions = self._consumer.list_topics(self._input, CALL_S).topics[self._input].partitions
        return sum(self._committed(list(partitions)).values()) >= self._records

    def _transaction(self, messages: Sequence[Message], before: Offsets) -> None:
        consumed: Offsets = {}
        for message in messages:
            consumed[message.partition() or 0] = (message.offset() or 0) + 1
        drawn = self._chance.random()
        bounds = (("aborted", ABORTED), ("timed_out", ABORTED + TIMED_OUT), ("fenced", ABORTED + TIMED_OUT + FENCED))
        end = next((name for name, bound in bounds if drawn < bound), "committed")
        may_have_committed = False
        try:
            if end == "timed_out":
                self._producer = self._new_producer(SHORT_MS)
            self._producer.begin_transaction()
            for message in messages:
                self._producer.produce(self._output, message.value())
            offsets = [TopicPartition(self._input, partition, offset) for partition, offset in consumed.items()]
            self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), CALL_S)
            if end == "committed":
                may_have_committed = True
                self._producer.commit_transaction(CALL_S)
            elif end == "aborted":
                self._producer.abort_transaction(CALL_S)
            else:
                self._be_refused(end, list(consumed))
        except KafkaException as error:
            self.counts["errors"] += 1
            self.errors.append(f"{end} {error}")
            self._producer = self._new_producer(LONG_MS)  # it fences the one before, and ends its transaction
            self._check(f"{end}, with an error", before, before | consumed if may_have_committed else before)
        else:
            self.counts[end] += 1
            after = before | consumed if end == "committed" else before
            if self._chance.random() < CHECKED:
                self._check(end, after)
            elif self._known is not None:
                self._known = after
        self._seek()

    def _be_refused(self, end: str, partitions: list[int]) -> None:
        """The transaction is over before its producer ends it. What is committed can be said again when it is."""
        successor = self._new_producer(LONG_MS) if end == "fenced" else None
        self._committed(partitions)
        try:
            self._producer.commit_transaction(CALL_S)
        except KafkaException:
            pass
        else:
            self.wrong.append(f"a transaction that was {end} was committed")
        self._producer = successor or self._new_producer(LONG_MS)

    def _check(self, end: str, *allowed: Offsets) -> None:
        then = self._assignments
        found = self._committed(self._assigned())
        if then == self._assignments and self._known is not None:
            self.counts["checked"] += 1
            if found not in allowed:
                self.wrong.append(f"{end}: {found} and not {' or '.join(map(str, allowed))}")
        self._known = found

    def _seek(self) -> None:
        for partition, offset in (self._known or {}).items():
            try:
                self._consumer.seek(TopicPartition(self._input, partition, offset))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:  # it is about to be assigned, from what is committed
                    raise

    def _assigned(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def _committed(self, partitions: Sequence[int]) -> Offsets:
        """The committed offsets, once no transaction is about to change them. Asks again while the group has no
        coordinator."""
        asked = [TopicPartition(self._input, partition) for partition in partitions]
        return {each.partition: max(each.offset, 0) for each in committed(self._consumer, asked)}

    def _new_producer(self, timeout_ms: int) -> Producer:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": self._name, "log_level": 0}
        # By default librdkafka forgets all nodes when its last connection breaks, as when the gateway is killed, and
        # then waits for one of them for good (its issue 5511, docs/failures.md).
        settings |= {"metadata.recovery.strategy": "none", "transaction.timeout.ms": str(timeout_ms)}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            producer = Producer(settings)
            try:
                producer.init_transactions(CALL_S)
            except KafkaException:
                assert time.monotonic() < deadline, "no producer id"
                continue
            return producer


def committed(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Asks again while the group has no coordinator that answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return consumer.committed(partitions, timeout=10)
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def read_committed(bootstrap: str, topic: str) -> Counter[str]:
    """Values of a topic up to its end, as a reader of committed records sees them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    partitions = set(consumer.list_topics(topic, CALL_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: Counter[str] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while partitions:
        assert time.monotonic() < deadline, f"no end of {topic}: {partitions}"
        for message in consumer.consume(500, 0.5):
            error = message.error()
            if error is None:
                found[(message.value() or b"").decode()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition() or 0)
    consumer.close()
    return found
