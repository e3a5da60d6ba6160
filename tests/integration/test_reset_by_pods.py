"""Resets by the pod API, of groups at Muster with the data of a real Kafka, beside kafka-consumer-groups; and of live
groups, whose members are parked."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import pytest
from aiohttp import ClientSession
from confluent_kafka import Producer
from tests.integration.test_reset import COMMITTED, HOUR_S, TOPICS, commit, committed, fill
from tests.support.java_consumers import JavaConsumer
from tests.support.kafka_broker import KafkaBroker, group_command, run_tool, why_no_kafka_yet
from tests.support.live_groups import Aio, Confluent, Member, Modern, Pure, running
from tests.support.local_cluster import LocalCluster
from tests.support.local_cluster import muster as muster_command
from tests.support.moves_under_kills import until

from muster_coordinator.podapi.resets import PlanAnswer, PlanRequest, ResetAnswer, ResetRequest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(600),
]

OPTIONS = ("--partitions", "5", "--gateway-port", "0", "--muster-groups", "m-")
LIVE, RECORDS = "live", 300
_A = TypeVar("_A")


class Pods:
    def __init__(self, session: ClientSession, muster: LocalCluster) -> None:
        self._session = session
        self.data = muster.data

    async def ask(self, path: str, request: PlanRequest | ResetRequest, answer: type[_A]) -> _A:
        """The answer of the pod that leads the group's partition; the others refuse."""
        found = []
        for pod in json.loads((self.data / "run.json").read_text())["pods"]:
            body = msgspec.json.encode(request)
            async with self._session.post(f"http://{pod['apiAddress']}{path}", data=body) as response:
                content = await response.read()
                assert response.status in (200, 409), content
                if response.status == 200:
                    found.append(msgspec.json.decode(content, type=answer))
        (led,) = found
        return led


async def test_pods_put_groups_where_kafkas_tool_does(tmp_path: Path) -> None:
    newest_s = time.time() - HOUR_S / 2
    settings = {"message.timestamp.before.max.ms": str(1 << 60), "offsets.topic.num.partitions": "5"}
    async with KafkaBroker(tmp_path / "kafka", settings, {**TOPICS, LIVE: 2}) as kafka:
        bootstrap = f"127.0.0.1:{kafka.port}"
        await asyncio.to_thread(fill, bootstrap, newest_s)
        with LocalCluster(tmp_path / "muster", *OPTIONS, "--upstream", bootstrap) as muster:
            here = await asyncio.to_thread(muster.wait_ready)
            async with ClientSession() as session:
                await compare(Pods(session, muster), bootstrap, here, newest_s)
                (line,) = [each for each in muster.lines if each.startswith("gateway bootstrap=")]
                gateway = line.split()[1].removeprefix("bootstrap=")
                await live_groups_begin_again(Pods(session, muster), bootstrap, gateway)


async def planned(pods: Pods, request: PlanRequest) -> PlanAnswer:
    """The first one that nothing stands in the way of: pods have to list Kafka's topics first."""
    async with asyncio.timeout(120):
        while (plan := await pods.ask("/v1/resets/plan", request, PlanAnswer)).obstacles:
            await asyncio.sleep(0.1)
    return plan


async def compare(pods: Pods, kafka: str, here: str, newest_s: float) -> None:
    at_s = newest_s - 4.5 * HOUR_S
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(at_s))
    cases = (
        (("--all-topics", "--to-earliest"), PlanRequest("", "earliest")),
        (("--topic", "t", "--to-latest"), PlanRequest("", "latest", 0, ("t",))),
        (("--topic", "t", "--topic", "u", "--to-offset", "9"), PlanRequest("", "offset", 9, ("t", "u"))),
        (("--all-topics", "--shift-by", "-9"), PlanRequest("", "shiftBy", -9)),
        (("--topic", "t", "--to-datetime", at), PlanRequest("", "datetime", int(at_s) * 1000, ("t",))),
    )
    for number, (words, request) in enumerate(cases):
        group, theirs = f"m-{number}", f"theirs-{number}"
        await asyncio.to_thread(commit, here, group)
        await asyncio.to_thread(commit, kafka, theirs)
        code, output = await run_tool(
            *group_command(kafka, ("--reset-offsets", "--group", theirs, *words, "--execute"))
        )
        assert (code, "Error:" in output) == (0, False), output
        plan = await planned(pods, msgspec.structs.replace(request, group=group))
        assert await asyncio.to_thread(committed, here, group) == COMMITTED, "a plan writes nothing"
        for _ in range(2):
            answer = await pods.ask("/v1/resets", ResetRequest(group, plan.offsets), ResetAnswer)
            assert answer.outcome == "Written", answer
        assert await asyncio.to_thread(committed, here, group) == await asyncio.to_thread(committed, kafka, theirs)


class Cooperative(Confluent):
    """Keeps partitions through a rebalance."""

    PROTOCOL: ClassVar[dict[str, Any]] = {
        **Confluent.PROTOCOL,
        "partition.assignment.strategy": "cooperative-sticky",
    }


async def live_groups_begin_again(pods: Pods, kafka: str, gateway: str) -> None:
    """Each member is given all records a second time, and commits on from there; one that could keep its position stays
    as it is."""
    await asyncio.to_thread(produce, kafka)
    kinds: tuple[type[Member], ...] = (Confluent, Modern, Pure, Aio)
    python = [kind(gateway, f"m-live-{kind.__name__}", LIVE) for kind in kinds]
    stays = Cooperative(gateway, "m-live-cooperative", LIVE)
    with ExitStack() as stack:
        stack.enter_context(running([*python, stays]))
        java = [JavaConsumer(gateway, LIVE, f"m-live-java-{each}", protocol=each) for each in ("classic", "consumer")]
        for each in java:
            stack.callback(each.stop)
        members = [*python, *java]
        await until(lambda: all(len(each.values) == RECORDS for each in (*members, stays)), "all records")
        await asyncio.sleep(1)  # what each has been given last is committed
        by_hand, *others = members
        for member in others:
            await begin_again(pods, member.group)
        await asyncio.to_thread(begin_again_by_hand, pods.data, kafka, by_hand.group)
        begun_s = time.monotonic()
        await until(lambda: all(len(each.values) == 2 * RECORDS for each in members), "all records again")
        print(f"again after {time.monotonic() - begun_s:.1f} s")
        plan = await pods.ask("/v1/resets/plan", PlanRequest(stays.group, "earliest", park=True), PlanAnswer)
        assert "cooperative-sticky" in plan.obstacles[0]
        await asyncio.sleep(0.5)
        assert (len(stays.values), stays.revoked) == (RECORDS, 0)
    for member in members:
        assert Counter(member.values) == {str(number): 2 for number in range(RECORDS)}, member


def begin_again_by_hand(data: Path, kafka: str, group: str) -> None:
    words = ("--topic", LIVE, "--to-earliest", "--execute", "--park-members", "--data-from", kafka)
    done = muster_command("groups", "reset", group, *words, "--data-dir", str(data))
    assert (done.returncode, f"{group}: 2 offsets written" in done.stdout) == (0, True), done


async def begin_again(pods: Pods, group: str) -> None:
    plan = await planned(pods, PlanRequest(group, "earliest", park=True))
    assert [each.before for each in plan.offsets] == [RECORDS // 2, RECORDS // 2], "all was committed"
    answer = await pods.ask("/v1/resets", ResetRequest(group, plan.offsets, park=True), ResetAnswer)
    assert answer.outcome == "Written", answer


def produce(kafka: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "acks": "all", "log_level": 0})
    for number in range(RECORDS):
        producer.produce(LIVE, str(number), partition=number % 2)
    assert producer.flush(30) == 0
