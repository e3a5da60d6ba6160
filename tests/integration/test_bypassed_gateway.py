"""A group that is used through the gateway and at Kafka itself at once: what the operator says of it within seconds.

Kafka, the pod that mirrors it, the gateway and the operator's session with the pod are real; the operator's step is
its plan of what that session shows.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace
from tests.support.gateway import GatewayProcess
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.mirrored import until
from tests.support.pod import SoloPod

from muster_coordinator.podapi.client import new_session
from muster_operator.api.conditions import Condition, find_condition
from muster_operator.api.models import CoordinatorCluster, CoordinatorClusterSpec, ObjectMeta, Upstream
from muster_operator.clock import SYSTEM_CLOCK
from muster_operator.kube.events import noteworthy
from muster_operator.plan.actions import WriteClusterStatus
from muster_operator.plan.observation import Observation
from muster_operator.plan.planner import plan
from muster_operator.pods.session import PodSession
from muster_operator.store.workload import PodInfo, PodPhase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

PARTITIONS = 3
TOPICS = {"t": 4}
KAFKA = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "100",
    "group.coordinator.rebalance.protocols": "classic",
}
GROUP, CLIENT = "muster-billing", "old-config"
SECONDS = 10.0
"""Within which a person is told."""


class OperatorStep:
    """Plans the status of a cluster of one pod, as often as it is asked, and keeps what it wrote last."""

    def __init__(self, session: PodSession, upstream: str) -> None:
        self._session = session
        spec = CoordinatorClusterSpec(pods=1, upstream=Upstream(upstream, served_groups=("muster-",)))
        self._cluster = CoordinatorCluster(ObjectMeta("pod", "ns"), spec)
        self.events: list[Condition] = []

    async def bypassed(self) -> Condition | None:
        """The condition after one more step."""
        seen = Observation("ns", "pod", self._cluster, pods=(self._session.view(),))
        for action in plan(seen, SYSTEM_CLOCK.wall()):
            if isinstance(action, WriteClusterStatus):
                self.events += noteworthy(self._cluster.status.conditions, action.status.conditions)
                self._cluster = replace(self._cluster, status=action.status)
        return find_condition(self._cluster.status.conditions, "Bypassed")


def member_at(broker: KafkaBroker) -> Consumer:
    member = Consumer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": GROUP, "client.id": CLIENT})
    member.subscribe(["t"])
    return member


async def commit_through(gateway: GatewayProcess, offset: int) -> int:
    client = await KafkaClient.connect(gateway.port)
    try:
        return await client.commit(GROUP, offset)
    finally:
        await client.close()


async def served_twice(pod: SoloPod) -> dict[str, Any] | None:
    lines = [json.loads(line) for line in pod.log().splitlines() if line.startswith("{")]
    return next((line for line in lines if line["event"] == "group_served_twice"), None)


async def test_group_in_use_at_kafka_and_through_the_gateway_is_told_to_people(tmp_path: Path) -> None:
    async with KafkaBroker(tmp_path / "upstream", KAFKA, TOPICS) as broker:
        upstream = f"127.0.0.1:{broker.port}"
        config = [f"muster.upstream.bootstrap={upstream}", "muster.upstream.served.groups=muster-"]
        async with (
            SoloPod(tmp_path / "data", PARTITIONS, TOPICS, config) as pod,
            GatewayProcess(tmp_path, upstream, f"127.0.0.1:{pod.kafka_port}", {"muster.groups": "muster-"}) as gateway,
            new_session() as http,
        ):
            info = PodInfo(pod.name, 0, "uid", f"127.0.0.1:{pod.api_port}", "", PodPhase.RUNNING)
            session = PodSession(http, info, 5.0, SYSTEM_CLOCK, lambda: None)
            session.start()
            step = OperatorStep(session, upstream)

            async def is_up() -> bool:
                return session.is_up

            await until(is_up, "a stream of the pod")
            assert await commit_through(gateway, 3) == 0
            assert await step.bypassed() is None

            member = member_at(broker)

            async def has_partitions() -> bool:
                await asyncio.to_thread(member.poll, 0.1)
                return bool(member.assignment())

            await until(has_partitions, "an assignment at Kafka")
            await asyncio.to_thread(member.commit, offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
            condition = await until(step.bypassed, "the condition Bypassed", SECONDS)
            assert (condition.status, condition.reason) == ("True", "UsedAtUpstream")
            assert condition.message == f"used at the upstream itself: {GROUP} by {CLIENT}@127.0.0.1"
            assert [each for each in step.events if each.type == "Bypassed"] == [condition], "one Event"
            line = await until(lambda: served_twice(pod), "a line of the log", SECONDS)
            assert (line["group"], line["clients"]) == (GROUP, f"{CLIENT}@127.0.0.1")

            member.close()

            async def is_over() -> bool:
                return await step.bypassed() is None

            await until(is_over, "no condition when the member has left")
            ended = session.stop()
            assert ended is not None
            await asyncio.gather(ended, return_exceptions=True)
