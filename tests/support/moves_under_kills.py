"""Pods and a gateway in front of a Kafka: one of them, or Kafka, is killed at a named step of a live group's move."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.both_logs import commits_on_the_wrong_side
from tests.support.kafka_broker import KafkaBroker
from tests.support.live_groups import Confluent, running
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.moving_pods import Pods

from muster_coordinator.podapi.moves import MovesAnswer, MoveStatus

TOPIC, PARTITIONS = "in", 2
CONSUMERS = {"group.consumer.session.timeout.ms": "60000"}
"""The longest that there is: a Kafka that starts again on a busy machine, and then a gateway, take over 20 s."""
KAFKA = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    **CONSUMERS,
}
LOGS = int(KAFKA["offsets.topic.num.partitions"])
OPTIONS = ["--partitions", "3", "--gateway-port", "0", "--muster-groups", "m-"]
SETTINGS = ["muster.upstream.movable.groups=mv-", "muster.upstream.lease.ms=1500"]
WHO = ("leader", "gateway", "kafka")


class PodsThatDie(Pods):
    """Some of them are on their way up at any time."""

    async def start(self, group: str, *, dry_run: bool = False, back: bool = False) -> None:
        while True:
            try:
                return await super().start(group, dry_run=dry_run, back=back)
            except ClientError:
                await asyncio.sleep(0.05)

    async def leading(self, group: str) -> int:
        """The process that leads the group's partition, as soon as one does."""
        async with asyncio.timeout(60):
            while True:
                for each in self._record():
                    if await self._leads(each["apiAddress"], group):
                        pid: int = each["process"]["pid"]
                        return pid
                await asyncio.sleep(0.05)

    async def _leads(self, api: str, group: str) -> bool:
        try:
            async with self._session.post(f"http://{api}/v1/moves", json={"group": group, "dryRun": True}) as answer:
                return answer.status == 200
        except ClientError:
            return False

    async def _found(self, group: str) -> tuple[str, MoveStatus]:
        for api in self.apis():
            try:
                async with self._session.get(f"http://{api}/v1/moves") as answer:
                    moves = msgspec.json.decode(await answer.read(), type=MovesAnswer).moves
            except ClientError:
                continue
            for each in reversed(moves):
                if each.group == group:
                    return api, each
        raise AssertionError(f"no pod knows of a move of {group}")


class Feed:
    """Produces to Kafka itself until it is stopped: each number once, in order, though Kafka dies meanwhile.
    `produced`: how many are there already. `partitions`: of the topic, which take turns."""

    def __init__(
        self,
        bootstrap: str,
        produced: int = 0,
        topic: str = TOPIC,
        partitions: int = PARTITIONS,
        every_s: float = 0.02,
    ) -> None:
        self.produced = produced
        self._topic, self._partitions, self._every_s = topic, partitions, every_s
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._producer.produce(self._topic, str(self.produced), partition=self.produced % self._partitions)
            self.produced += 1
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


@asynccontextmanager
async def before_kafka(
    data: Path, upstream: str, consumers: Mapping[str, str] = CONSUMERS
) -> AsyncIterator[tuple[PodsThatDie, str]]:
    """(pods, the gateway's bootstrap), once both are ready. `consumers`: settings of groups, as Kafka has them."""
    settings = [*SETTINGS, *(f"{name}={value}" for name, value in consumers.items())]
    options = [*OPTIONS, *(part for each in settings for part in ("--config", each))]
    with LocalCluster(data, *options, "--upstream", upstream) as muster:
        line = await asyncio.to_thread(muster.wait_line, "gateway bootstrap=")
        await asyncio.to_thread(wait_until, lambda: any(line.startswith("ready") for line in muster.lines), "ready")
        async with ClientSession() as session:
            yield PodsThatDie(session, muster), line.split()[1].removeprefix("bootstrap=")


async def judged_commits(kafka: KafkaBroker, pods: PodsThatDie) -> int:
    """The number of commits of members in both logs, none of which is on the wrong side."""
    await asyncio.sleep(1)  # segment files are behind by 250 ms
    logs = sorted((pods.muster.data / "pods").iterdir())
    wrong, judged = commits_on_the_wrong_side([kafka.data_dir], logs, LOGS)
    print(judged, "commits judged")
    assert wrong == {}
    return judged


@asynccontextmanager
async def live(members: Sequence[Confluent]) -> AsyncIterator[None]:
    """Each commits while this is entered."""
    with running(members):
        await until(lambda: all(each.commits > 5 for each in members), "commits of all groups")
        yield


async def kill_at(
    pods: PodsThatDie,
    kafka: KafkaBroker,
    member: Confluent,
    who: str,
    step: str,
    steps: Sequence[str],
    *,
    back: bool = False,
) -> tuple[str, str]:
    """(who was killed, at which step): at that step of the move of the member's group, or a later one, as some take a
    millisecond. The member commits again afterwards."""
    if step == "waiting":  # takes time only at a leader that does not know the leases of the one before
        os.kill(await pods.leading(member.group), signal.SIGKILL)
    await pods.start(member.group, back=back)
    leader, at = await _reached(pods, member.group, step, steps)
    if who == "kafka":
        kafka.kill()
        await kafka.start()
    else:
        os.kill(leader if who == "leader" else pods.muster.run_record()["gateway"]["pid"], signal.SIGKILL)
    before = member.commits
    await until(lambda: member.commits > before + 5, f"{member} after {who} was killed, {at}")
    return who, at


async def _reached(pods: PodsThatDie, group: str, step: str, steps: Sequence[str]) -> tuple[int, str]:
    """(its leader's process, the step)."""
    while True:
        found = (await pods.status(group)).step
        if found not in steps or steps.index(found) >= steps.index(step):
            return await pods.leader_of(group), found
        await asyncio.sleep(0)


async def until(reached: Any, what: str) -> None:
    deadline_s = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline_s, f"not within a minute: {what}"
        await asyncio.sleep(0.05)


async def until_all_are_read(members: Sequence[Confluent], produced: int) -> None:
    """Wait until each member has had each record, which takes longer the more there are. Fails after a minute in which
    no member got one."""
    read, deadline_s = 0, time.monotonic() + 60
    while (left := {f"{each}": produced - len(set(each.values)) for each in members}) and any(left.values()):
        if (now := sum(len(each.values) for each in members)) > read:
            read, deadline_s = now, time.monotonic() + 60
        assert time.monotonic() < deadline_s, f"of {produced} records lack: {left}"
        await asyncio.sleep(0.05)


def committed(bootstrap: str, group: str) -> int:
    """All that the group has committed, as one number."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], timeout=30)
    consumer.close()
    return sum(each.offset for each in found)
