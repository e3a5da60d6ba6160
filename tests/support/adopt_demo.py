"""The steps of docs/adopt.md on this machine: a Kafka cluster with a group, and Muster in front of it.

Three real brokers; a producer and the group `billing` use them. Then Muster mirrors the cluster, clients change their
bootstrap to the gateway, a new group lives in Muster, and Kafka's own tools show both. The pod that leads the new group
is killed. Then `billing` moves to Muster and back to Kafka while its member consumes. Every acknowledged record has to
reach each of the two applications once; only the way back may bring some of `billing` again, since its member joins
anew. Everything is kept in .cache/adopt-demo, or the directory that is named. Needs Java 17, and Maven the first time.
Exit code 0: so it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from tests.support.kafka_broker import group_command, run_tool, why_no_kafka
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.record_load import NotingConsumer, NumberedProducer

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / ".cache" / "adopt-demo"
TOPIC, PARTITIONS = "orders", 6
BILLING, AUDIT = "billing", "m-audit"
"""A group of Kafka's, which moves; one of Muster's, which begin with m-."""
POD_IDS = 1_000_000
"""Clients know Muster's pod n by this number plus n."""
SESSION_MS = 6000
"""The session of the member that moves. Kafka takes the group back once this session has ended there, too."""
WAIT_S = 120.0


def main() -> int:
    missing = why_no_kafka()
    if missing:
        print(f"demo-adopt: {missing}", file=sys.stderr)
        return 1
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    started = time.monotonic()
    asyncio.run(demo())
    print(f"\n({time.monotonic() - started:.0f} s)")
    return 0


async def demo() -> None:
    say(f"Kafka starts: three brokers, topic {TOPIC}")
    async with KafkaCluster(ROOT / "kafka", {TOPIC: PARTITIONS}) as kafka:
        producer = NumberedProducer(kafka.bootstrap, TOPIC)
        billing = NotingConsumer(kafka.bootstrap, TOPIC, BILLING)
        await asyncio.to_thread(billing.wait_received, 200)
        note(f"the group {BILLING} has {len(billing.numbers)} records; Kafka is its coordinator")
        say("mirror: Muster follows the groups of Kafka, and no client changes")
        front = ("--upstream", kafka.bootstrap, "--muster-groups", "m-", "--gateway-port", "0")
        movable = ("--config", f"muster.upstream.movable.groups={BILLING}")
        with LocalCluster(ROOT / "muster", *front, *movable) as muster:
            await asyncio.to_thread(fronted, kafka, muster, producer, billing)
            check(await asyncio.to_thread(muster.stop) == 0, "Muster did not end in order")


def fronted(kafka: KafkaCluster, muster: LocalCluster, producer: NumberedProducer, billing: NotingConsumer) -> None:
    gateway = muster.wait_line("gateway bootstrap=").removeprefix("gateway bootstrap=").split()[0]
    show_mirror(kafka, muster)

    say("front: producer and consumer change bootstrap.servers to the gateway, once")
    producer.stop()
    billing.stop()
    more = NumberedProducer(gateway, TOPIC, first=producer.count)
    through = NotingConsumer(gateway, TOPIC, BILLING, login={"session.timeout.ms": str(SESSION_MS)})
    through.wait_received(200)
    note(f"{BILLING} goes on with record {through.numbers[0]}; Kafka is still its coordinator")

    say(f"a new group lives in Muster: {AUDIT}")
    audit = NotingConsumer(gateway, TOPIC, AUDIT, commits_each=True)
    audit.wait_received(len(billing.numbers))
    show_tools(kafka, gateway)

    say("the pod that leads it is killed")
    audit.wait_received(more.count + producer.count - 100)
    kill_leader(muster, gateway, audit)

    say(f"{BILLING} moves to Muster while it consumes")
    move(muster, "move")
    through.goes_on(200)
    check(len(set(through.numbers)) == len(through.numbers), f"a record came to {BILLING} twice")
    check(through.assignments == 1, f"{BILLING} was rebalanced")
    note(f"it has {len(through.numbers)} records by now, none of them twice, and was not rebalanced")

    say(f"{BILLING} moves back to Kafka, once Kafka's session of its member has ended")
    move(muster, "back")
    through.goes_on(200)
    check(through.assignments <= 2, f"{BILLING} was rebalanced more than once")
    note(f"its member joined again there; assignments since it came through the gateway: {through.assignments}")

    say("all records are waited for")
    more.stop()
    produced = sorted(producer.acknowledged() + more.acknowledged())
    wait_until(lambda: set(audit.numbers) >= set(produced), f"records of {AUDIT}", WAIT_S)
    wait_until(lambda: {*billing.numbers, *through.numbers} >= set(produced), f"records of {BILLING}", WAIT_S)
    for each in (audit, through):
        each.stop()
    check(audit.received() == produced, "records of audit are missing or came twice")
    check(audit.assignments == 1, "a member of m-audit was sent away")
    again = len(billing.numbers) + len(through.numbers) - len(produced)
    note(f"{len(produced)} records were acknowledged, and each of the two applications had all of them")
    note(f"{again} came to {BILLING} twice: read before it went back to Kafka, and not committed yet")


def move(muster: LocalCluster, verb: str) -> None:
    """Nothing is moved while something stands in the way: then it is asked again."""
    command = [sys.executable, "-m", "muster_cli", "groups", verb, BILLING, "--data-dir", str(muster.data)]

    def is_free() -> bool:
        return subprocess.run([*command, "--dry-run"], capture_output=True, check=False).returncode == 0

    wait_until(is_free, f"nothing stands in the way of `{verb}`", WAIT_S)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        note(line)


def show_mirror(kafka: KafkaCluster, muster: LocalCluster) -> None:
    bootstrap = muster.wait_ready()
    at_kafka, at_muster = admin(kafka.bootstrap), admin(bootstrap)

    def behind() -> int:
        mirrored, known = committed(at_muster), committed(at_kafka)
        return known - mirrored if mirrored >= 0 else known

    wait_until(lambda: behind() <= 50 and committed(at_muster) > 0, "Muster has the offsets of billing", WAIT_S)
    command = [sys.executable, "-m", "muster_cli", "mirror", "status", "--data-dir", str(muster.data)]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        note(line)


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def committed(client: AdminClient) -> int:
    """All that the group has committed at a cluster, as one number; -1: it does not say."""
    try:
        answer = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(BILLING)])[BILLING].result()
    except KafkaException:
        return -1
    return sum(each.offset for each in answer.topic_partitions if each.offset > 0)


def show_tools(kafka: KafkaCluster, gateway: str) -> None:
    for where, bootstrap in (("a broker", kafka.bootstrap), ("the gateway", gateway)):
        note(f"kafka-consumer-groups --list at {where}: {', '.join(sorted(tool(bootstrap, '--list').split()))}")
    check(AUDIT not in tool(kafka.bootstrap, "--list"), "Kafka has the group, too")
    for line in tool(gateway, "--describe", "--group", AUDIT).strip().splitlines()[:4]:
        note(" ".join(line.split()[:6]))


def kill_leader(muster: LocalCluster, gateway: str, audit: NotingConsumer) -> None:
    client = admin(gateway)
    coordinator = client.describe_consumer_groups([AUDIT])[AUDIT].result().coordinator.id
    pod = next(each for each in muster.status()["pods"] if each["name"].endswith(f"-{coordinator - POD_IDS}"))
    audit.longest_pause_s = 0.0
    os.kill(pod["pid"], signal.SIGKILL)
    audit.goes_on(300)
    note(f"{pod['name']} is gone; the longest time between two commits of {AUDIT} was {audit.longest_pause_s:.2f} s")


def tool(bootstrap: str, *arguments: str) -> str:
    code, output = asyncio.run(run_tool(*group_command(bootstrap, arguments)))
    check(code == 0, output)
    return output


def say(text: str) -> None:
    print(f"--- {text}", flush=True)


def note(text: str) -> None:
    print(f"      {text}", flush=True)


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(f"demo-adopt: {message}")


if __name__ == "__main__":
    sys.exit(main())
