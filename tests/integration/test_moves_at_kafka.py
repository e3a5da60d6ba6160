"""A live group of a real Kafka moves to a pod that mirrors it: compared by what Kafka answers, and served on.

The test plays the gateway's part as far as leases go; `test_moving_groups.py` has the real one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientError, ClientSession
from confluent_kafka import Consumer, TopicPartition
from tests.support.kafka import KafkaClient, entity
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.mirrored import groups_of, until
from tests.support.pod import SoloPod

from muster_coordinator.podapi.leases import LeaseAsk, LeasesAnswer, LeasesRequest
from muster_coordinator.podapi.moves import MoveAnswer, MovesAnswer

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
GROUP, EMPTY = "orders", "orders-tool"


class Gateway:
    """Has leases, reports fences as drained at once, and sends nothing."""

    def __init__(self, session: ClientSession, api: str) -> None:
        self._session = session
        self._api = api
        self._number = 0
        self._drained: dict[int, tuple[int, frozenset[int]]] = {}

    async def run(self) -> None:
        while True:
            with suppress(ClientError):  # the pod starts again
                await self.ask()
            await asyncio.sleep(0.1)

    async def ask(self) -> LeasesAnswer:
        self._number += 1
        none: tuple[int, frozenset[int]] = (-1, frozenset())
        asks = [LeaseAsk(each, self._number, *self._drained.get(each, none)) for each in range(PARTITIONS)]
        body = msgspec.json.encode(LeasesRequest("test", ("orders",), tuple(asks)))
        async with self._session.post(f"{self._api}/v1/leases", data=body) as response:
            assert response.status == 200, await response.text()
            answer = msgspec.json.decode(await response.read(), type=LeasesAnswer)
        for each in answer.answers:
            fences = frozenset(fence.number for fence in each.fences)
            self._drained[each.partition] = (each.leader_epoch, fences)
        return answer


async def move(
    session: ClientSession, api: str, group: str, *, dry_run: bool = False, back: bool = False
) -> MoveAnswer:
    body = {"group": group, "dryRun": dry_run, "back": back}
    async with session.post(f"{api}/v1/moves", json=body) as response:
        assert response.status == 200, await response.text()
        return msgspec.json.decode(await response.read(), type=MoveAnswer)


async def moved(session: ClientSession, api: str, group: str, *, back: bool = False) -> MovesAnswer:
    """Follow a move, and ask for it again when a busy machine has taken longer than a fence may stand."""

    async def has_ended() -> MovesAnswer | None:
        async with session.get(f"{api}/v1/moves") as response:
            answer = msgspec.json.decode(await response.read(), type=MovesAnswer)
        latest = [each for each in answer.moves if each.group == group][-1]
        if latest.step == "given up":
            assert "it took too long" in latest.reason, latest.reason
            await move(session, api, group, back=back)
        return answer if latest.step == "moved" else None

    found: MovesAnswer = await until(has_ended, f"{group} has moved", 120)
    return found


async def beat(port: int, group: str, generation: int, member_id: str) -> int:
    client = await KafkaClient.connect(port)
    try:
        request = entity("heartbeat", 3)(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=None
        )
        return int((await client.call(request)).error_code)
    finally:
        await client.close()


async def test_live_group_of_kafka_moves_in_its_state_and_is_served(tmp_path: Path) -> None:
    async with KafkaBroker(tmp_path / "upstream", KAFKA, TOPICS) as broker:
        member = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": GROUP, "enable.auto.commit": False}
        )
        member.subscribe(["t"])

        async def has_partitions() -> bool:
            await asyncio.to_thread(member.poll, 0.1)
            return bool(member.assignment())

        await until(has_partitions, "an assignment at Kafka")
        places = [TopicPartition("t", number, 5 + number, metadata="päckchen") for number in range(3)]
        await asyncio.to_thread(member.commit, offsets=places, asynchronous=False)
        client = await KafkaClient.connect(broker.port)
        assert await client.commit(EMPTY, 9) == 0
        await client.close()
        config = [
            f"muster.upstream.bootstrap=127.0.0.1:{broker.port}",
            "muster.upstream.movable.groups=orders",
            "muster.upstream.lease.ms=500",
        ]
        async with SoloPod(tmp_path / "data", PARTITIONS, TOPICS, config) as pod, ClientSession() as session:
            api = f"http://127.0.0.1:{pod.api_port}"
            gateway = Gateway(session, api)

            async def leads_all() -> bool:
                return len((await gateway.ask()).answers) == PARTITIONS

            await until(leads_all, "leases of all partitions")
            leasing = asyncio.create_task(gateway.run())
            try:
                await _moves(session, api, pod, broker, member)
            finally:
                leasing.cancel()
                with suppress(asyncio.CancelledError):
                    await leasing
                await asyncio.to_thread(member.close)


async def _moves(session: ClientSession, api: str, pod: SoloPod, broker: KafkaBroker, member: Any) -> None:
    async def nothing_stands_in_the_way() -> bool:
        return not (await move(session, api, GROUP, dry_run=True)).obstacles

    await until(nothing_stands_in_the_way, "the mirror has read the group")
    assert "there is no such group" in (await move(session, api, "orders-none")).obstacles
    before = await groups_of(broker.port, (GROUP, EMPTY))
    (member_id, *_) = before[GROUP][0][4][0]
    assert await beat(pod.kafka_port, GROUP, 1, member_id) == 16, "NOT_COORDINATOR"
    for group in (GROUP, EMPTY):
        assert not (await move(session, api, group)).obstacles
        answer = await moved(session, api, group)
        assert group in {route.group for route in answer.routes if route.at_muster}
    assert await groups_of(pod.kafka_port, (GROUP, EMPTY)) == before
    assert await beat(pod.kafka_port, GROUP, 1, member_id) == 0
    assert await beat(pod.kafka_port, GROUP, 2, member_id) == 22, "ILLEGAL_GENERATION"
    await asyncio.to_thread(member.commit, offsets=[TopicPartition("t", 0, 99)], asynchronous=False)  # still at Kafka

    async def is_noticed() -> bool:
        return "group_served_twice" in pod.log()

    await until(is_noticed, "the client that goes on at Kafka is noticed")
    assert await groups_of(pod.kafka_port, (GROUP, EMPTY)) == before, "and changes nothing"
    await _goes_back(session, api, pod, broker)
    pod.kill()
    await pod.start()

    async def is_served_on() -> bool:
        return await beat(pod.kafka_port, GROUP, 1, member_id) == 0

    await until(is_served_on, "the next leader serves the group")
    assert await groups_of(pod.kafka_port, (GROUP,)) == {GROUP: before[GROUP]}
    assert await commit(pod.kafka_port, EMPTY, 44) == 16, "NOT_COORDINATOR"


async def commit(port: int, group: str, offset: int) -> int:
    client = await KafkaClient.connect(port)
    try:
        return int(await client.commit(group, offset))
    finally:
        await client.close()


async def _goes_back(session: ClientSession, api: str, pod: SoloPod, broker: KafkaBroker) -> None:
    """The group without members does; the other one has members at Kafka."""

    async def is_said() -> bool:
        return "it has members at Kafka" in str((await move(session, api, GROUP, back=True)).obstacles)

    await until(is_said, "the members at Kafka are in the way", 60)
    assert await commit(pod.kafka_port, EMPTY, 42) == 0

    async def begins() -> bool:  # when the broker has made the topic of its transactions
        return not (await move(session, api, EMPTY, back=True)).obstacles

    await until(begins, "nothing stands in the way", 60)
    answer = await moved(session, api, EMPTY, back=True)
    assert {route.group: (route.epoch, route.at_muster) for route in answer.routes}[EMPTY] == (2, False)
    assert await commit(pod.kafka_port, EMPTY, 43) == 16, "NOT_COORDINATOR"
    offsets = await groups_of(broker.port, (EMPTY,))
    assert offsets == await groups_of(pod.kafka_port, (EMPTY,)), "all that was committed here is there"
    assert "42" in str(offsets[EMPTY])
