"""Unchanged clients of movable groups, with a real Kafka: fences fall, leases end and begin, and no group notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.gateway import GatewayProcess
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.lease_api import PARTITIONS, PodApi
from tests.support.live_groups import LiveGroups
from tests.support.pod import free_ports

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(300),
]

TOPIC, TOPIC_PARTITIONS = "orders", 2
PREFIX = "mv-"
FENCES = 5


async def until(condition: Callable[[], bool], what: object, timeout_s: float = 60.0) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


def movable(api: PodApi) -> dict[str, str]:
    """Settings of the gateway."""
    return {
        "muster.movable.groups": PREFIX,
        "muster.api.servers": f"127.0.0.1:{api.port}",
        "muster.transactions": "1",
    }


async def test_fences_and_lost_leases_cost_no_rebalance_and_no_record(tmp_path: Path) -> None:
    api = PodApi()
    api.lease_ms = 1500
    muster = f"127.0.0.1:{free_ports(1)[0]}"  # nobody listens there, and nobody is asked
    async with (
        KafkaCluster(tmp_path / "kafka", {TOPIC: TOPIC_PARTITIONS}, brokers=1) as kafka,
        api.listening(),
        GatewayProcess(tmp_path, kafka.bootstrap, muster, movable(api)) as gateway,
    ):
        groups = LiveGroups(gateway.bootstrap, TOPIC, PREFIX)
        with groups:
            await until(lambda: all(each.assigned and each.commits > 20 for each in groups.members), "commits")
            for number in range(FENCES):
                await _fence(api, groups, number)
            errors = [each.errors for each in groups.members]
            longest_s = [round(each.longest_s, 2) for each in groups.members]
            await _lose_leases(api, gateway, groups)
            await asyncio.to_thread(groups.stop_feeding)
            await until(lambda: all(len(each.values) >= groups.produced for each in groups.members), "records")
            revoked = [each.revoked for each in groups.members]
        print(f"{groups.produced} records; longest commits (s) with fences: {longest_s}")
        assert errors == [[], [], []]
        assert revoked == [0, 0, 0]
        for each in groups.members:
            assert sorted(each.values, key=int) == groups.values, type(each)


async def _fence(api: PodApi, groups: LiveGroups, number: int) -> None:
    """All groups are fenced, and stay at Kafka. While they are, nobody commits, and records flow."""
    numbers = {each.group: 10 * number + index for index, each in enumerate(groups.members)}
    api.fences |= numbers
    await until(lambda: api.drained >= set(numbers.values()), "drained")
    commits = [each.commits for each in groups.members]
    records = groups.produced
    await until(lambda: groups.produced > records + 20, "records while groups are fenced")
    for each, before in zip(groups.members, commits, strict=True):
        assert each.commits <= before + 1  # whose answer was on its way
    api.fences.clear()
    await until(
        lambda: all(each.commits > before for each, before in zip(groups.members, commits, strict=True)), "commits"
    )


async def _lose_leases(api: PodApi, gateway: GatewayProcess, groups: LiveGroups) -> None:
    api.leads = ()
    await until(lambda: any(each["held"] == 0 for each in gateway.events("leases_missing")[1:]), "no lease")
    commits = [each.commits for each in groups.members]
    api.leads = range(PARTITIONS)
    await until(
        lambda: all(each.commits > before for each, before in zip(groups.members, commits, strict=True)), "commits"
    )
