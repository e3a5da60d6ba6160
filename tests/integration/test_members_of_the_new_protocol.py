"""Members with `group.protocol=consumer` (KIP-848) of three unchanged clients, each a process: they come and go, are
killed, restart as static members, pause for longer than they may, subscribe by an expression, and their application is
moved from the classic protocol and back while it runs. Each says what it owns: no partition is two members' at once.

Directly at a pod, which has no records, and through the gateway with records of a real Kafka. `make test` has franz-go,
`make prove-consumers` Java and librdkafka as well; CLIENTS names some.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from tests.support.go_programs import WHY_NONE, compiled
from tests.support.group_configs import set_group_configs
from tests.support.group_members import CONSUMER, HERE, POLL_MS, Member
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster
from tests.support.owners import Owned, owned_twice
from tests.support.pod import SoloPod

NO_KAFKA = why_no_kafka_yet()
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

CLIENTS = os.environ.get("CLIENTS", "franz").split()
SCENARIOS = ("shared", "static", "paused", "expression", "moved")
PARTITIONS, RECORDS = 6, 60
SHORT_POLL_MS, PAUSE_MS = 6_000, 15_000
WAIT_S = 90.0
AT_ONCE = 3
"""Scenarios that run side by side: most of the time they wait for a session's end."""
CLASSIC = "cooperative-sticky"
QUICK = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.initial.rebalance.delay.ms": "500",
}


class Case:
    """A client and what it goes through: a topic and a group of its own. `reads`: whether there are records."""

    def __init__(self, bootstrap: str, reads: bool, client: str, scenario: str) -> None:
        self.name = f"{client}-{scenario}"
        self.topic, self.group = topic_of(client, scenario), f"m-{self.name}"
        self.bootstrap = bootstrap
        self.members: list[Member] = []
        self._reads = reads
        self.client = client
        self._used = 0

    def member(
        self,
        protocol: str = CONSUMER,
        instance: str | None = None,
        poll_ms: int = POLL_MS,
        topic: str | None = None,
    ) -> Member:
        where = (self.client, self.bootstrap, topic or self.topic, self.group)
        member = Member(*where, protocol, instance, poll_ms)
        self.members.append(member)
        return member

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not await asyncio.to_thread(holds):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            told = [(sorted(each.owns), each.answers, list(each.said)) for each in self.members]
            raise AssertionError(f"{self.name}: {what}, in vain; what members own and said last: {told}") from None

    async def shared(self, *members: Member, topics: Sequence[str] = ()) -> None:
        """The members own all, evenly."""
        whole = {(topic, partition) for topic in topics or (self.topic,) for partition in range(PARTITIONS)}

        def is_shared() -> bool:
            owned: list[set[Owned]] = [member.owns for member in members]
            sizes = [len(each) for each in owned]
            return set().union(*owned) == whole and sum(sizes) == len(whole) and max(sizes) - min(sizes) <= 1

        await self.until(is_shared, f"{len(members)} members share {len(whole)} partitions")

    async def used(self, *members: Member) -> None:
        """These members read new records and commit them; at a pod they commit what they are told to."""
        self._used += 1
        if self._reads:
            values = range(self._used * RECORDS, (self._used + 1) * RECORDS)
            await asyncio.to_thread(self._produce, values)

            def are_read() -> bool:
                return set(values) <= {value for member in members for value in tuple(member.numbers)}

            await self.until(are_read, f"{len(values)} records are read")
            await self.until(lambda: sum(self._committed()) == self._used * RECORDS, "they are committed")
            return
        answered = [len(member.answers) for member in members]
        for member in members:
            member.ask(f"commit {self._used}")
        await self.until(lambda: all(len(m.answers) > n for m, n in zip(members, answered, strict=True)), "answers")
        assert [member.answers[-1] for member in members] == ["committed"] * len(members)
        assert self._committed() == [self._used] * PARTITIONS

    def _produce(self, values: range) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})
        for number in values:
            producer.produce(self.topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0

    def _committed(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = [ConsumerGroupTopicPartitions(self.group)]
        (future,) = admin.list_consumer_group_offsets(asked, request_timeout=WAIT_S).values()
        return [each.offset for each in future.result().topic_partitions]

    async def is_of(self, kind: ConsumerGroupType) -> None:
        def found() -> bool:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            listed = admin.list_consumer_groups(request_timeout=WAIT_S).result().valid
            return [each.type for each in listed if each.group_id == self.group] == [kind]

        await self.until(found, f"the group is {kind}")

    async def leave(self, member: Member) -> None:
        await asyncio.to_thread(member.end, signal.SIGTERM)

    def end(self) -> None:
        for member in self.members:
            member.end(signal.SIGKILL)


def topic_of(client: str, scenario: str) -> str:
    return f"{client}.{scenario}"


def more_of(topic: str) -> str:
    return f"{topic}.more"


async def shared(case: Case) -> None:
    first, second = case.member(), case.member()
    await case.shared(first, second)
    await case.used(first, second)
    await asyncio.to_thread(first.end, signal.SIGKILL)
    await case.shared(second)
    await case.used(second)
    third = case.member()
    await case.shared(second, third)
    await case.used(second, third)
    await case.leave(second)
    await case.shared(third)
    await case.used(third)


async def static(case: Case) -> None:
    """A member that is stopped comes again with its instance id, and the other one does not notice. franz-go does not
    say its instance id when it stops, is refused for it, and can come again once its session is over."""
    stays = case.client != "franz"
    if stays:
        await set_group_configs(case.bootstrap, case.group, {"consumer.session.timeout.ms": "60000"})
    first, second = case.member(instance="one"), case.member(instance="two")
    await case.shared(first, second)
    await case.used(first, second)
    before, noticed = first.owns, list(second.events)
    await case.leave(first)
    again = case.member(instance="one")
    await case.until(lambda: len(again.owns) == len(before), "the static member has partitions again")
    if stays:
        assert (again.owns, second.events) == (before, noticed)
    await case.used(again, second)


async def paused(case: Case) -> None:
    """A member that needs longer than it may is put out: others get what it had, and its commit is refused."""
    first = case.member(poll_ms=SHORT_POLL_MS)
    await case.shared(first)
    await case.used(first)
    answered = len(first.answers)
    first.ask(f"pause {PAUSE_MS}")
    await case.until(lambda: first.gone_ms is not None, "the member pauses")
    second = case.member()
    await case.until(lambda: len(second.owns) == PARTITIONS, "another member has all")
    await case.until(lambda: len(first.answers) > answered, "the member commits late")
    assert first.answers[-1].startswith("refused"), first.answers
    await case.shared(first, second)
    await case.used(first, second)


async def expression(case: Case) -> None:
    topics = (case.topic, more_of(case.topic))
    name = f"^{case.topic.replace('.', '[.]')}.*"
    first, second = case.member(topic=name), case.member(topic=name)
    await case.shared(first, second, topics=topics)
    await case.leave(first)
    await case.shared(second, topics=topics)


async def moved(case: Case) -> None:
    """From the classic protocol to the new one and back, one member after the other."""
    here = [case.member(CLASSIC), case.member(CLASSIC)]
    await case.shared(*here)
    await case.used(*here)
    for protocol, kind in ((CONSUMER, ConsumerGroupType.CONSUMER), (CLASSIC, ConsumerGroupType.CLASSIC)):
        for _ in range(2):
            here.append(case.member(protocol))
            await case.shared(*here)
            await case.used(*here)
            await case.leave(here.pop(0))
            await case.shared(*here)
            await case.used(*here)
        await case.is_of(kind)


async def run(bootstrap: str, reads: bool) -> None:
    turns = asyncio.Semaphore(AT_ONCE)
    cases = [(client, scenario) for client in CLIENTS for scenario in SCENARIOS]

    async def one(client: str, scenario: str) -> None:
        async with turns:
            case = Case(bootstrap, reads, client, scenario)
            try:
                await globals()[scenario](case)
                assert not (wrong := owned_twice(case.members)), f"{case.name}: {wrong}"
            finally:
                await asyncio.to_thread(case.end)

    done = await asyncio.gather(*(one(*names) for names in cases), return_exceptions=True)
    failed = [f"{names}: {error!r}" for names, error in zip(cases, done, strict=True) if error is not None]
    assert not failed, "\n".join(failed)


def topics() -> dict[str, int]:
    found = {topic_of(client, scenario): PARTITIONS for client in CLIENTS for scenario in SCENARIOS}
    return found | {more_of(topic): PARTITIONS for topic in found if topic.endswith("expression")}


def skip_what_cannot_run() -> None:
    if "franz" in CLIENTS and compiled(HERE / "go_members") is None:
        pytest.skip(WHY_NONE)
    if "java" in CLIENTS and NO_KAFKA:
        pytest.skip(NO_KAFKA)


async def test_members_of_the_new_protocol_at_a_pod(tmp_path: Path) -> None:
    skip_what_cannot_run()
    config = [f"{name}={value}" for name, value in QUICK.items()]
    async with SoloPod(tmp_path / "data", partitions=5, topics=topics(), config=config) as pod:
        await run(f"127.0.0.1:{pod.kafka_port}", reads=False)


@pytest.mark.skipif(bool(NO_KAFKA), reason=NO_KAFKA or "there is Kafka")
async def test_members_of_the_new_protocol_through_the_gateway(tmp_path: Path) -> None:
    skip_what_cannot_run()
    options = ["--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-"]
    options += [word for name, value in QUICK.items() for word in ("--config", f"{name}={value}")]
    async with KafkaCluster(tmp_path / "kafka", topics(), brokers=1) as kafka:
        with LocalCluster(tmp_path / "muster", *options, "--upstream", kafka.bootstrap) as muster:
            line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
            await asyncio.to_thread(muster.wait_line, "ready")
            await run(line.split()[1].removeprefix("bootstrap="), reads=True)
