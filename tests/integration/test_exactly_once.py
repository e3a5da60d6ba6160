"""Exactly once through the gateway, whatever is killed: three applications, two groups at Muster, late markers.

`make prove-exactly-once` kills each kind of process 10 times, with three brokers, and has markers 5 s late. Without the
barrier (`pod.mirroring.barrier`) the same applications lose records: a late marker ends the wrong transaction.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.pod import free_ports
from tests.support.record_load import NumberedProducer
from tests.support.slow_fetches import SlowFetches
from tests.support.transformers import JavaTransformer, LibrdkafkaTransformer, read_committed

from muster_coordinator.records.partitioner import partition_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(3600),
]

KILLS = int(os.environ.get("TXN_KILLS", "1"))
"""Of each kind of process."""
BROKERS = int(os.environ.get("TXN_BROKERS", "1"))
LATE_S = float(os.environ.get("TXN_MARKERS_LATE_S", "0.5"))
LATE_TRANSACTIONS = int(os.environ.get("TXN_LATE_TRANSACTIONS", "3"))
"""Of all applications together, while markers are late, before each kill."""
SEED = int(os.environ.get("TXN_SEED", "7"))
INPUT, PARTITIONS, OFFSETS_PARTITIONS = "in", 4, 5
ALONE, SHARED = "alone", "shared"
"""Groups: with one application, of librdkafka, and with two, of which one is Java's. Each has an output of its own."""
PROTOCOLS = {ALONE: "classic", SHARED: os.environ.get("TXN_PROTOCOL", "consumer")}
"""By group. With `consumer` (KIP-848) a transaction commits with the member epochs of consumers."""
KAFKA = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
WAIT_S = 120.0


def output_of(group: str) -> str:
    return f"out-{group}"


@dataclass
class Site:
    kafka: KafkaCluster
    relays: list[SlowFetches]
    muster: LocalCluster
    bootstrap: str

    def be_late(self, delay_s: float) -> None:
        for relay in self.relays:
            relay.delay_s = delay_s

    def kill_gateway(self) -> None:
        gateway = self.muster.run_record()["gateway"]
        if gateway is not None:
            os.kill(gateway["pid"], signal.SIGKILL)

    def kill_leader(self, group: str) -> None:
        """The pod that coordinates the group, and mirrors the partition with its markers."""
        report = self.muster.status()
        leaders = {line["partition"]: line["leader"] for line in report["partitions"]}
        leader = leaders[partition_for(group, OFFSETS_PARTITIONS)]
        (pid,) = [pod["pid"] for pod in report["pods"] if pod["name"] == leader]
        os.kill(pid, signal.SIGKILL)

    def is_whole(self) -> bool:
        report = self.muster.status()
        return all(pod["alive"] for pod in report["pods"]) and all(
            line["leader"] and len(line["followers"]) == 2 for line in report["partitions"]
        )

    async def restart_broker(self, number: int) -> None:
        self.kafka.kill(number)
        self.kafka.start(number)
        await self.kafka.wait_in_sync()


@asynccontextmanager
async def site(directory: Path, brokers: int, command: Sequence[str] = ("muster_cli",)) -> AsyncIterator[Site]:
    topics = {INPUT: PARTITIONS, output_of(ALONE): 2, output_of(SHARED): 2}
    relayed = free_ports(brokers)
    async with AsyncExitStack() as stack:
        kafka = KafkaCluster(directory / "kafka", topics, brokers, KAFKA, relayed)
        relays = [SlowFetches(*each) for each in zip(relayed, [0.0] * brokers, kafka.behind_relays, strict=True)]
        for relay in relays:
            await stack.enter_async_context(relay)
        await stack.enter_async_context(kafka)
        mirrored = ",".join(f"127.0.0.1:{port}" for port in relayed)
        options = ["--upstream", kafka.bootstrap, "--gateway-port", "0", "--partitions", str(OFFSETS_PARTITIONS)]
        options += ["--config", "group.initial.rebalance.delay.ms=100"]
        options += ["--config", f"muster.upstream.bootstrap={mirrored}"]
        muster = stack.enter_context(LocalCluster(directory / "muster", *options, command=command))
        line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
        await asyncio.to_thread(wait_until, lambda: any(each.startswith("ready") for each in muster.lines), "ready")
        yield Site(kafka, relays, muster, line.split()[1].removeprefix("bootstrap="))


class Applications:
    """All three, and the producer of their input; it is entered by what runs them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        alone, shared = (INPUT, output_of(ALONE)), (INPUT, output_of(SHARED))
        self.all = [
            LibrdkafkaTransformer(bootstrap, ALONE, "librdkafka-alone", alone, SEED, PROTOCOLS[ALONE]),
            LibrdkafkaTransformer(bootstrap, SHARED, "librdkafka-shared", shared, SEED + 1, PROTOCOLS[SHARED]),
            JavaTransformer(bootstrap, SHARED, "java-shared", shared, SEED + 2, PROTOCOLS[SHARED]),
        ]
        self._input = NumberedProducer(bootstrap, INPUT)

    def committed(self) -> int:
        return sum(each.counts["committed"] for each in self.all)

    async def more(self, transactions: int, of_each: int = 0) -> None:
        """As many committed transactions more, of all together and of each."""
        begin, each_begin = self.committed(), [each.counts["committed"] for each in self.all]

        def has() -> bool:
            counts = [each.counts["committed"] for each in self.all]
            return self.committed() >= begin + transactions and all(
                now >= then + of_each for now, then in zip(counts, each_begin, strict=True)
            )

        try:
            await asyncio.to_thread(wait_until, has, f"{transactions} transactions", WAIT_S)
        except AssertionError:
            pytest.fail(f"no {transactions} transactions in {WAIT_S:.0f} s: {self.summary()}")

    async def finish(self) -> list[int]:
        """What the input has, when all of it is committed by both groups."""
        await asyncio.to_thread(self._input.stop)
        numbers = self._input.acknowledged()
        await asyncio.gather(*(asyncio.to_thread(each.finish, len(numbers)) for each in self.all))
        return numbers

    def kill(self) -> None:
        for each in self.all:
            each.kill()

    def summary(self) -> str:
        return "; ".join(
            f"{type(each).__name__} {dict(each.counts)} {Counter(error[:90] for error in each.errors).most_common(6)}"
            for each in self.all
        )


def kinds_of_groups(bootstrap: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups(request_timeout=WAIT_S).result()
    assert not listed.errors
    return {each.group_id: each.type.name.lower() for each in listed.valid}


async def violations(bootstrap: str, numbers: list[int], applications: Applications) -> list[str]:
    """What is not as exactly once wants it."""
    found = [f"{len(each.wrong)} offsets: {each.wrong[:3]}" for each in applications.all if each.wrong]
    expected = Counter(map(str, numbers))
    for group in (ALONE, SHARED):
        output = await asyncio.to_thread(read_committed, bootstrap, output_of(group))
        if missing := expected - output:
            found.append(f"{group}: {len(missing)} of {len(numbers)} are missing: {sorted(map(int, missing))[:10]}")
        if twice := output - expected:
            found.append(f"{group}: {len(twice)} came more than once: {sorted(map(int, twice))[:10]}")
    return found


async def test_each_record_is_transformed_once_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with site(tmp_path, BROKERS) as running:
        applications = Applications(running.bootstrap)
        try:
            await applications.more(3, of_each=1)
            assert await asyncio.to_thread(kinds_of_groups, running.bootstrap) == PROTOCOLS
            kinds = ["gateway", "leader", "mirror", "broker"] * KILLS
            chance.shuffle(kinds)
            for kind in kinds:
                await kill(running, kind, chance)
                await applications.more(3)
            killed = applications.summary()
            running.be_late(LATE_S)
            await applications.more(LATE_TRANSACTIONS)
            for kind in ("leader", "gateway", "broker")[: 3 if KILLS > 1 else 1]:
                await kill(running, kind, chance)
                await applications.more(LATE_TRANSACTIONS)
            running.be_late(0.0)
            numbers = await applications.finish()
            wrong = await violations(running.bootstrap, numbers, applications)
        finally:
            applications.kill()
    print(f"{len(numbers)} records; {len(kinds)} kills: {killed}; with late markers: {applications.summary()}")
    assert wrong == []
    ends = sum((each.counts for each in applications.all), Counter())
    assert ends["aborted"] > 0
    assert ends["checked"] > 0.4 * ends["committed"]


async def kill(running: Site, kind: str, chance: random.Random) -> None:
    await asyncio.to_thread(wait_until, running.is_whole, "a whole Muster", WAIT_S)
    if kind == "gateway":
        running.kill_gateway()
    elif kind == "broker":
        await running.restart_broker(chance.randrange(BROKERS))
    else:
        await asyncio.to_thread(running.kill_leader, ALONE if kind == "leader" else SHARED)


async def test_without_the_barrier_records_are_lost_or_offsets_are_wrong(tmp_path: Path) -> None:
    """The same applications, the same judge: it sees the planted fault."""
    async with site(tmp_path, 1, ("tests.support.without_barrier",)) as running:
        running.be_late(LATE_S)
        applications = Applications(running.bootstrap)
        try:
            await asyncio.to_thread(
                wait_until, lambda: any(each.wrong for each in applications.all), "a wrong offset", WAIT_S
            )
        finally:
            applications.kill()
        print(applications.all[0].wrong[:1], applications.all[1].wrong[:1], applications.all[2].wrong[:1])
