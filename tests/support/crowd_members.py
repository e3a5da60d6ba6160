"""Many members of groups with one of the Python clients, in one process; see crowd.py for what they print.

python -m tests.support.crowd_members CLIENT BOOTSTRAP TOPIC PERIOD_MS SESSION_MS GROUP[/INSTANCE]...
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Collection, Sequence
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from kafka.structs import OffsetAndMetadata
from tests.support.offsets_ledger import now_ms

POLL_MS = 50


class Member:
    """A member: what it has read, and when it commits. `number`: its place in the command."""

    def __init__(self, number: int, name: str, bootstrap: str, topic: str, period_ms: int, session_ms: int) -> None:
        self.group, _, instance = name.partition("/")
        self.instance = instance or None
        self.bootstrap, self.topic, self.session_ms = bootstrap, topic, session_ms
        self.read: dict[int, int] = {}
        """The next offset of each partition that it has read from."""
        self._number = number
        self._period_ms = period_ms
        self._due_ms = 0
        self._begun_ms: int | None = None

    def say(self, *words: object) -> None:
        """In one piece: members are threads, and print writes the end of a line by itself."""
        sys.stdout.write(" ".join(map(str, (self._number, *words))) + "\n")
        sys.stdout.flush()

    def has_read(self, partition: int, offset: int, value: bytes) -> None:
        self.read[partition] = offset + 1
        self.say("record", now_ms(), value.decode())

    def given(self, partitions: Collection[Any]) -> None:
        self.say("given", len(partitions))

    def taken(self, partitions: Collection[Any]) -> None:
        self.say("taken", len(partitions))
        for each in partitions:
            self.read.pop(each.partition, None)

    def begins_to_commit(self) -> bool:
        """True at most once in a period, and not before the last one is answered: the order of two that wait is
        nobody's promise when their connection ends."""
        if not self.read or self._begun_ms is not None or now_ms() < self._due_ms:
            return False
        self._begun_ms = now_ms()
        self._due_ms = max(self._due_ms + self._period_ms, self._begun_ms)
        return True

    def answered(self, error: object, ends: dict[int, int]) -> None:
        """`error`: falsy if the commit was acknowledged."""
        assert self._begun_ms is not None
        took_ms, self._begun_ms = now_ms() - self._begun_ms, None
        if error:
            self.say("refused", repr(error).replace("\n", " "))
        else:
            self.say("committed", now_ms(), took_ms, *(f"{partition}:{end}" for partition, end in ends.items()))


def librdkafka(member: Member) -> None:
    def on_commit(error: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        failed = error or next((each.error for each in partitions if each.error), None)
        member.answered(failed, {each.partition: each.offset for each in partitions})

    static = {"group.instance.id": member.instance} if member.instance else {}
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": member.bootstrap,
            "group.id": member.group,
            "session.timeout.ms": member.session_ms,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "on_commit": on_commit,
            **static,
        }
    )
    consumer.subscribe(
        [member.topic],
        on_assign=lambda _, partitions: member.given(partitions),
        on_revoke=lambda _, partitions: member.taken(partitions),
    )
    while True:
        for each in consumer.consume(100, POLL_MS / 1000):
            if each.error() is None:
                member.has_read(each.partition(), each.offset(), each.value())
        if member.begins_to_commit():
            ends = [confluent_kafka.TopicPartition(member.topic, *place) for place in member.read.items()]
            consumer.commit(offsets=ends, asynchronous=True)


def kafka_python(member: Member) -> None:
    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            member.taken(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            member.given(assigned)

    def on_commit(ends: dict[Any, Any], response: object) -> None:
        failed = response if isinstance(response, Exception) else None
        member.answered(failed, {each.partition: end.offset for each, end in ends.items()})

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=member.bootstrap.split(","),
        group_id=member.group,
        group_instance_id=member.instance,
        session_timeout_ms=member.session_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([member.topic], listener=Listener())
    while True:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            for each in records:
                member.has_read(each.partition, each.offset, each.value)
        if member.begins_to_commit():
            ends = {kafka.TopicPartition(member.topic, at): OffsetAndMetadata(end) for at, end in member.read.items()}
            consumer.commit_async(ends, on_commit)


async def aio(member: Member) -> None:
    class Listener(aiokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            member.taken(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            member.given(assigned)

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=member.bootstrap,
        group_id=member.group,
        group_instance_id=member.instance,
        session_timeout_ms=member.session_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([member.topic], listener=Listener())
    await consumer.start()

    async def read() -> None:
        while True:
            for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                for each in records:
                    member.has_read(each.partition, each.offset, each.value)

    reading = asyncio.create_task(read())
    while not reading.done():
        await asyncio.sleep(POLL_MS / 1000)
        if member.begins_to_commit():
            ends, failed = dict(member.read), None
            try:
                await consumer.commit({aiokafka.TopicPartition(member.topic, at): end for at, end in ends.items()})
            except Exception as error:
                failed = error
            member.answered(failed, ends)
    await reading


async def all_aio(members: Sequence[Member]) -> None:
    await asyncio.gather(*map(aio, members))


def main(client: str, bootstrap: str, topic: str, period_ms: str, session_ms: str, *names: str) -> None:
    times = int(period_ms), int(session_ms)
    members = [Member(number, name, bootstrap, topic, *times) for number, name in enumerate(names)]
    if client == "aiokafka":
        asyncio.run(all_aio(members))
    else:
        run = {"librdkafka": librdkafka, "kafka-python": kafka_python}[client]
        threads = [threading.Thread(target=run, args=(member,)) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
