"""Commits by topic id through the gateway, to groups at Muster: names come from the client's broker, order stays."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, framed, gateway, plain
from tests.unit.gateway.test_client import wait_for
from tests.unit.gateway.test_rewriting import read

from muster_coordinator.requests.cluster import MetadataTopic
from muster_coordinator.wire.framing import read_header
from muster_gateway import apis

IDS = {name: name.encode() * 16 for name in ("a", "b")}
NOBODYS = b"z" * 16


class Site:
    """A broker that knows the topics of IDS, and a pod that accepts every commit. `gate`: the broker answers then."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []
        self.committed: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def broker(self, key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        if key != apis.METADATA:
            return plain(correlation_id)
        header = read_header(frame)
        request: Any = header.api.decode_request(header, frame, "")
        self.asked.append([each.topic_id for each in request.topics])
        await self.gate.wait()
        topics = [self.topic(each) for each in request.topics]
        answer = {"brokers": (), "cluster_id": "c", "controller_id": 0, "topics": topics}
        return framed(frames.answer(key, version, answer, correlation_id))

    def topic(self, asked: Any) -> dict[str, Any]:
        by_id = {topic_id: name for name, topic_id in IDS.items()}
        name = asked.name if asked.name is not None else by_id.get(asked.topic_id)
        code = 0 if name in IDS else 100
        topic_id = IDS.get(name, asked.topic_id)
        return {"error_code": code, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": ()}

    async def pod(self, key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        header = read_header(frame)
        request: Any = header.api.decode_request(header, frame, "")
        assert version == 9
        if key == apis.OFFSET_COMMIT:
            self.committed += [(name, each[1]) for name, partitions in request.topics for each in partitions]
            topics = [
                {"name": name, "partitions": [{"partition_index": each[0], "error_code": 0} for each in partitions]}
                for name, partitions in request.topics
            ]
            return framed(frames.answer(key, 9, {"topics": topics}, correlation_id))
        row = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "metadata": ""}
        topics = [{"name": name, "partitions": [row | {"error_code": 0}]} for name in ("a", "gone")]
        groups = [{"group_id": "m-1", "topics": topics, "error_code": 0}]
        return framed(frames.answer(key, 9, {"groups": groups}, correlation_id))


def commit(offset: int, *topic_ids: bytes) -> bytes:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": None}
    fields = {"group_id": "m-1", "generation_id_or_member_epoch": 1, "member_id": "x", "group_instance_id": None}
    topics = [{"topic_id": topic_id, "partitions": [row]} for topic_id in topic_ids]
    return framed(frames.request(apis.OFFSET_COMMIT, 10, fields | {"topics": topics}))


async def codes(client: Client) -> dict[bytes, int]:
    answer = read(apis.OFFSET_COMMIT, 10, await client.receive())
    return {each.topic_id.bytes: int(each.partitions[0].error_code) for each in answer.topics}


async def with_site(run: Callable[[Site, Server, Server, Client, int], Any]) -> None:
    site = Site()
    async with Server(0, site.broker) as broker, Server(1, site.pod) as pod, gateway(broker, pod) as (_, port):
        client = await Client.connect(port)
        await run(site, broker, pod, client, port)
        client.close()


async def test_commit_by_id_reaches_a_pod_by_name_and_is_answered_by_id() -> None:
    async def run(site: Site, broker: Server, pod: Server, client: Client, port: int) -> None:
        client.writer.write(commit(7, IDS["a"], NOBODYS))
        assert await codes(client) == {IDS["a"]: 0, NOBODYS: 100}
        client.writer.write(commit(8, IDS["a"]))
        assert await codes(client) == {IDS["a"]: 0}
        assert site.committed == [("a", 7), ("a", 8)]
        assert [sorted(each) for each in site.asked] == [sorted((IDS["a"], NOBODYS))], "names are remembered"
        other = await Client.connect(port)
        other.writer.write(commit(9, IDS["a"]))
        assert await codes(other) == {IDS["a"]: 0}
        assert len(site.asked) == 1, "for all clients"
        other.close()

    await with_site(run)


async def test_no_pod_is_asked_about_topics_that_nobody_knows() -> None:
    async def run(site: Site, broker: Server, pod: Server, client: Client, port: int) -> None:
        client.writer.write(commit(7, NOBODYS))
        assert await codes(client) == {NOBODYS: 100}
        assert (site.committed, pod.requests) == ([], [])

    await with_site(run)


async def test_commit_does_not_overtake_one_whose_names_are_asked_for() -> None:
    async def run(site: Site, broker: Server, pod: Server, client: Client, port: int) -> None:
        client.writer.write(commit(1, IDS["b"]))
        assert await codes(client) == {IDS["b"]: 0}
        site.gate.clear()
        client.writer.write(commit(2, IDS["a"]) + commit(3, IDS["b"]))
        await wait_for(lambda: len(site.asked) == 2)
        other = await Client.connect(port)
        other.writer.write(commit(4, IDS["b"]))  # other connections are not touched
        assert await codes(other) == {IDS["b"]: 0}
        assert site.committed == [("b", 1), ("b", 4)]
        site.gate.set()
        assert await codes(client) == {IDS["a"]: 0}
        assert await codes(client) == {IDS["b"]: 0}
        assert site.committed == [("b", 1), ("b", 4), ("a", 2), ("b", 3)]
        other.close()

    await with_site(run)


async def test_all_offsets_of_a_group_are_shown_by_id() -> None:
    async def run(site: Site, broker: Server, pod: Server, client: Client, port: int) -> None:
        group = {"group_id": "m-1", "member_id": None, "member_epoch": -1, "topics": None}
        client.writer.write(framed(frames.request(apis.OFFSET_FETCH, 10, {"groups": [group], "require_stable": False})))
        (answered,) = read(apis.OFFSET_FETCH, 10, await client.receive()).groups
        found = [(each.topic_id.bytes, each.partitions[0].committed_offset) for each in answered.topics]
        assert found == [(IDS["a"], 5)]

    await with_site(run)


async def test_commit_by_id_of_a_group_at_kafka_passes() -> None:
    async def run(site: Site, broker: Server, pod: Server, client: Client, port: int) -> None:
        client.writer.write(commit(7, IDS["a"]).replace(b"m-1", b"k-1"))
        answer = await client.receive()
        assert struct.unpack_from(">i", answer) == (7,)
        assert ([key for key, _ in broker.requests], pod.requests) == ([apis.OFFSET_COMMIT], [])

    await with_site(run)


async def test_names_of_before_count_while_no_broker_can_be_asked() -> None:
    site = Site()
    async with Server(0, site.broker) as broker, Server(1, site.pod) as pod, gateway(broker, pod) as (under_test, port):
        client = await Client.connect(port)
        client.writer.write(commit(1, IDS["a"]))
        assert await codes(client) == {IDS["a"]: 0}
        names = under_test.topic_names
        names.learn([MetadataTopic("a", IDS["a"])], now_s=-1e9)
        under_test.upstream.failing = True
        client.writer.write(commit(2, IDS["a"]))
        assert await codes(client) == {IDS["a"]: 0}
        assert len(site.asked) == 1
        under_test.upstream.failing = False
        names.learn([MetadataTopic("a", IDS["a"])], now_s=-1e9)
        client.writer.write(commit(3, IDS["a"]))
        assert await codes(client) == {IDS["a"]: 0}
        assert len(site.asked) == 2
        client.close()
