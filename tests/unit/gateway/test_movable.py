"""Requests about movable groups over real sockets: a broker, a pod, and a pod API that gives leases as it is told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import CLUSTER, Authority, operator, pod, reader
from tests.support.lease_api import PARTITIONS, PodApi
from tests.unit.gateway import frames
from tests.unit.gateway.servers import Answering, Client, Server, gateway, plain
from tests.unit.gateway.test_client import describe, ended, wait_for

from muster_coordinator.errors import ErrorCode
from muster_coordinator.security.roles import Member, Role, only
from muster_coordinator.security.tls import server_context
from muster_gateway import apis
from muster_gateway.metrics import GatewayCollector
from muster_gateway.rewriting import read_config_resources, read_coordinators
from muster_gateway.slots import framed

LIST_OFFSETS = 2  # passes


async def from_kafka(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, b"kafka")


async def from_muster(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, struct.pack(">ii", 0, 0) + b"muster")


class Site:
    def __init__(self, under_test: Any, port: int, broker: Server, pod: Server, api: PodApi) -> None:
        self.gateway = under_test
        self.port = port
        self.broker = broker
        self.pod = pod
        self.api = api

    def kafka_got(self) -> list[int]:
        return [correlation_id for _, correlation_id in self.broker.requests]

    def metric(self, name: str) -> float:
        return next(each.samples[0].value for each in GatewayCollector(self.gateway).collect() if each.name == name)


@asynccontextmanager
async def site(
    kafka: Any = from_kafka, api: PodApi | None = None, pod: Any = None, **settings: str
) -> AsyncIterator[Site]:
    async with (
        (api or PodApi()).listening() as leases,
        Server(0, kafka) as broker,
        Server(1, pod or from_muster) as muster,
        gateway(
            broker,
            muster,
            **{
                "muster_movable_groups": "k-",
                "muster_transactions": "1",
                "muster_api_servers": f"127.0.0.1:{leases.port}",
                **settings,
            },
        ) as (under_test, port),
    ):
        yield Site(under_test, port, broker, muster, leases)


async def test_a_group_moves_under_its_client_and_back() -> None:
    async with site() as it:
        client = await Client.connect(it.port)
        client.send(apis.DESCRIBE_GROUPS, 0, 1, describe("k-1"))
        assert (await client.receive())[4:] == b"kafka"

        it.api.fences["k-1"] = 7
        await wait_for(lambda: 7 in it.api.drained)
        client.send(apis.DESCRIBE_GROUPS, 0, 2, describe("k-1"))
        client.send(LIST_OFFSETS, 1, 3)
        await wait_for(lambda: it.metric("muster_gateway_movable_requests_parked") == 1)
        other = await Client.connect(it.port)
        other.send(LIST_OFFSETS, 1, 4)  # data flows, and so do other groups
        other.send(apis.DESCRIBE_GROUPS, 0, 5, describe("k-2"))
        assert [(await other.receive())[4:] for _ in range(2)] == [b"kafka", b"kafka"]
        assert it.kafka_got() == [1, 4, 5]

        it.api.move("k-1", 1, at_muster=True)
        assert (await client.receive()).endswith(b"muster")
        assert (await client.receive()) == struct.pack(">i", 3) + b"kafka"  # in its order
        client.send(apis.DESCRIBE_GROUPS, 0, 6, describe("k-1"))
        assert (await client.receive()).endswith(b"muster")
        assert it.kafka_got() == [1, 4, 5, 3]

        it.api.move("k-1", 2, at_muster=False)
        await wait_for(lambda: not it.gateway.moves.is_at_muster("k-1"))
        client.send(apis.DESCRIBE_GROUPS, 0, 7, describe("k-1"))
        assert (await client.receive())[4:] == b"kafka"
        assert it.metric("muster_gateway_movable_requests_parked") == 0
        assert it.metric("muster_gateway_movable_requests_delayed") >= 1
        for each in (client, other):
            each.close()


def _slow(may_answer: asyncio.Event) -> Answering:
    """Kafka, which answers once it may."""

    async def answer(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        await may_answer.wait()
        return plain(correlation_id, b"kafka")

    return answer


async def test_a_fence_is_drained_only_when_kafka_has_answered() -> None:
    may_answer = asyncio.Event()
    async with site(_slow(may_answer)) as it:
        client = await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 1, _heartbeat("k-1"))
        await wait_for(lambda: it.kafka_got() == [1])
        it.api.fences["k-1"] = 7
        await wait_for(lambda: "k-1" in it.gateway.moves._lease("k-1").fenced)
        rounds = len(it.api.asked)
        await wait_for(lambda: len(it.api.asked) > rounds + 3)
        assert not it.api.drained
        may_answer.set()
        assert (await client.receive())[4:] == b"kafka"  # under its lease
        await wait_for(lambda: 7 in it.api.drained)
        client.close()


async def test_the_end_of_a_client_ends_what_it_has_outstanding() -> None:
    async def never(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with site(never) as it:
        client = await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 1, _heartbeat("k-1"))
        await wait_for(lambda: it.kafka_got() == [1])
        it.api.fences["k-1"] = 7
        await wait_for(lambda: "k-1" in it.gateway.moves._lease("k-1").fenced)
        assert not it.api.drained
        connection = client.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends, not only sends
        client.close()
        await wait_for(lambda: 7 in it.api.drained)


@pytest.mark.parametrize("answered", [False, True])
async def test_without_a_lease_no_answer_of_kafkas_passes(answered: bool) -> None:
    may_answer = asyncio.Event()
    async with site(_slow(may_answer)) as it:
        client = await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 1, _heartbeat("k-1"))
        await wait_for(lambda: it.kafka_got() == [1])
        if answered:  # as a process does that was frozen: nothing has looked at the lease before the answer came
            it.gateway.moves.look = lambda: None
        it.api.leads = ()
        await wait_for(lambda: it.gateway.moves.held == 0)
        if answered:
            may_answer.set()
        assert await ended(client)
        assert it.gateway.ended["lease_ended"] == 1
        assert it.metric("muster_gateway_movable_answers_withheld") == 1
        may_answer.set()


async def test_without_a_lease_requests_wait_and_end_when_it_takes_too_long() -> None:
    api = PodApi(range(0))
    async with site(api=api, park_ms="300") as it:
        client = await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 1, _heartbeat("k-1"))
        client.send(LIST_OFFSETS, 1, 2)
        assert await ended(client)
        assert it.gateway.ended["parked_too_long"] == 1
        assert it.metric("muster_gateway_movable_requests_given_up") == 1
        assert it.metric("muster_gateway_movable_requests_parked") == 0
        assert it.kafka_got() == []
        api.leads = range(PARTITIONS)
        await wait_for(lambda: it.metric("muster_gateway_leases") == PARTITIONS)
        client = await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 3, _heartbeat("k-1"))
        assert (await client.receive())[4:] == b"kafka"
        client.close()


async def test_a_client_that_ends_while_its_request_is_parked_leaves_nothing() -> None:
    async with site(api=PodApi(range(0))) as it:
        client = await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 1, _heartbeat("k-1"))
        await wait_for(lambda: it.metric("muster_gateway_movable_requests_parked") == 1)
        for connection in tuple(it.gateway._clients):
            connection.close("test")
        assert it.metric("muster_gateway_movable_requests_parked") == 0
        assert not it.gateway.moves._watchers


@pytest.mark.parametrize("half", [True, False])
async def test_what_a_client_has_left_parked_is_not_sent_after_it_has_gone(half: bool) -> None:
    """It may have sent later requests by another connection, which have been answered."""
    api = PodApi(range(0))
    async with site(api=api) as it:
        client = await Client.connect(it.port)
        for number in (1, 2):
            client.send(apis.HEARTBEAT, 0, number, _heartbeat("k-1"))
        await wait_for(lambda: it.metric("muster_gateway_movable_requests_parked") == 1)
        client.writer.write_eof() if half else client.close()
        api.leads = range(PARTITIONS)
        await wait_for(lambda: not it.gateway._clients)
        assert it.metric("muster_gateway_movable_requests_parked") == 0
        assert it.gateway.ended["client_ended"] == 1
        other = await Client.connect(it.port)
        other.send(apis.HEARTBEAT, 0, 3, _heartbeat("k-1"))
        assert (await other.receive())[4:] == b"kafka"
        assert it.kafka_got() == [3]
        for each in (client, other):
            each.close()


async def test_a_moved_group_stays_at_muster_without_a_lease() -> None:
    async with site() as it:
        it.api.move("k-1", 1, at_muster=True)
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1"))
        it.api.leads = ()
        await wait_for(lambda: it.gateway.moves.held == 0)
        client = await Client.connect(it.port)
        client.send(apis.DESCRIBE_GROUPS, 0, 1, describe("k-1"))
        assert (await client.receive()).endswith(b"muster")
        client.close()


async def test_groups_of_the_served_prefixes_and_all_others_need_no_lease() -> None:
    async with site() as it:
        await wait_for(lambda: it.gateway.moves.held == PARTITIONS)
        it.api.leads = ()
        await wait_for(lambda: it.gateway.moves.held == 0)
        client = await Client.connect(it.port)
        client.send(apis.DESCRIBE_GROUPS, 0, 1, describe("m-1"))
        assert (await client.receive()).endswith(b"muster")
        client.send(apis.DESCRIBE_GROUPS, 0, 2, describe("other"))
        assert (await client.receive())[4:] == b"kafka"
        client.close()


async def test_a_gateway_that_has_just_started_sends_nothing_to_kafka_before_it_knows_what_has_moved() -> None:
    api = PodApi(range(0))
    api.move("other", 1, at_muster=True)  # under a prefix that this gateway's settings do not have
    async with site(api=api) as it:
        client, served = await Client.connect(it.port), await Client.connect(it.port)
        client.send(apis.DESCRIBE_GROUPS, 0, 1, describe("other"))
        served.send(apis.DESCRIBE_GROUPS, 0, 2, describe("m-1"))
        assert (await served.receive()).endswith(b"muster")
        await wait_for(lambda: it.metric("muster_gateway_movable_requests_parked") == 1)
        api.leads = range(PARTITIONS)
        assert (await client.receive()).endswith(b"muster")
        client.send(apis.DESCRIBE_GROUPS, 0, 3, describe("another"))
        assert (await client.receive())[4:] == b"kafka"
        assert it.kafka_got() == [3]
        for each in (client, served):
            each.close()


@pytest.mark.parametrize("named", ["k-", ""])
async def test_groups_that_pods_let_move_are_movable_whatever_the_settings_name(named: str) -> None:
    may_answer = asyncio.Event()
    async with site(_slow(may_answer), muster_movable_groups=named) as it:
        await wait_for(lambda: it.gateway.moves.held == PARTITIONS)
        client, idle = await Client.connect(it.port), await Client.connect(it.port)
        client.send(apis.HEARTBEAT, 0, 1, _heartbeat("other"))
        idle.send(LIST_OFFSETS, 1, 2)
        await wait_for(lambda: sorted(it.kafka_got()) == [1, 2])
        it.api.movable = ("k-1", "oth")
        assert await ended(client), "Kafka would answer what was sent without a lease"
        assert it.gateway.ended["movable_groups_learned"] == 1
        may_answer.set()
        assert (await idle.receive())[4:] == b"kafka"
        await wait_for(lambda: "oth" in it.api.asked[-1].movable)
        assert it.metric("muster_gateway_movable_groups_learned") == 1 + (not named)
        it.api.fences["other"] = 7
        await wait_for(lambda: 7 in it.api.drained)
        idle.send(apis.HEARTBEAT, 0, 3, _heartbeat("other"))
        await wait_for(lambda: it.metric("muster_gateway_movable_requests_parked") == 1)
        it.api.move("other", 1, at_muster=True)
        assert (await idle.receive()).endswith(b"muster")
        assert sorted(it.kafka_got()) == [1, 2]
        for each in (client, idle):
            each.close()


async def test_a_request_for_groups_of_both_sides_is_refused() -> None:
    async with site() as it:
        it.api.move("k-1", 1, at_muster=True)
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1"))
        client = await Client.connect(it.port)
        for number, others in enumerate((["k-2"], ["other"], ["k-2", "m-1"])):
            groups = ["k-1", *others]
            request = frames.request(apis.DELETE_GROUPS, 2, {"groups_names": tuple(groups)}, number)
            client.writer.write(framed(request))
            answer = await client.receive()
            assert answer.count(struct.pack(">h", ErrorCode.NOT_COORDINATOR)) == len(groups)
        assert it.kafka_got() == []
        client.close()


async def test_each_group_of_a_request_is_outstanding() -> None:
    may_answer = asyncio.Event()
    async with site(_slow(may_answer)) as it:
        client = await Client.connect(it.port)
        client.writer.write(framed(frames.request(apis.DELETE_GROUPS, 2, {"groups_names": ("k-1", "x", "k-2")}, 1)))
        await wait_for(lambda: it.kafka_got() == [1])
        it.api.fences |= {"k-1": 7, "k-2": 8, "k-3": 9}
        await wait_for(lambda: 9 in it.api.drained)
        assert it.api.drained == {9}
        may_answer.set()
        await wait_for(lambda: it.api.drained == {7, 8, 9})
        client.close()


@pytest.mark.parametrize(
    "key",
    [
        apis.TXN_OFFSET_COMMIT,
        apis.DESCRIBE_CONFIGS,
        apis.ALTER_CONFIGS,
        apis.OFFSET_FETCH,
        apis.CONSUMER_GROUP_HEARTBEAT,
        apis.CONSUMER_GROUP_DESCRIBE,
    ],
)
async def test_each_kind_of_request_about_a_group_goes_by_its_route(key: int) -> None:
    def request(group: str, correlation_id: int) -> bytes:
        if key == apis.CONSUMER_GROUP_HEARTBEAT:
            beat = {"group_id": group, "member_id": "a", "member_epoch": 3, "subscribed_topic_names": None}
            beat |= {"server_assignor": None, "topic_partitions": None}
            return frames.request(key, 1, beat, correlation_id)
        if key == apis.CONSUMER_GROUP_DESCRIBE:
            named = {"group_ids": (group,), "include_authorized_operations": False}
            return frames.request(key, 1, named, correlation_id)
        if key == apis.TXN_OFFSET_COMMIT:
            more = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "topics": ()}
            return frames.request(key, 0, {"group_id": group, **more}, correlation_id)
        if key == apis.DESCRIBE_CONFIGS:
            resource = {"resource_type": 32, "resource_name": group, "configuration_keys": None}
            described = {"resources": (resource,), "include_synonyms": False, "include_documentation": False}
            return frames.request(key, 4, described, correlation_id)
        if key == apis.ALTER_CONFIGS:
            replaced = {"resource_type": 32, "resource_name": group, "configs": ()}
            return frames.request(key, 2, {"resources": (replaced,), "validate_only": False}, correlation_id)
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        return frames.request(key, 9, {"groups": (asked,), "require_stable": False}, correlation_id)

    async with site() as it:
        it.api.move("k-1", 1, at_muster=True)
        it.api.fences["k-3"] = 7
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1") and it.gateway.moves.is_fenced)
        client = await Client.connect(it.port)
        for number, group in enumerate(("k-1", "k-2", "k-3")):
            client.writer.write(framed(request(group, number)))
        assert (await client.receive()).endswith(b"muster")
        assert (await client.receive()).endswith(b"kafka")
        await wait_for(lambda: it.metric("muster_gateway_movable_requests_parked") == 1)
        assert it.kafka_got() == [1]
        it.api.move("k-3", 1, at_muster=True)
        assert (await client.receive()).endswith(b"muster")
        assert it.kafka_got() == [1]
        client.close()


async def test_find_coordinator_names_the_side_that_serves_a_group() -> None:
    async def kafka(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        assert key == apis.FIND_COORDINATOR
        found = {"key": "k-2", "node_id": 0, "host": "h", "port": 1, "error_code": 0, "error_message": None}
        return framed(frames.answer(key, version, {"coordinators": (found,)}, correlation_id))

    async with site(kafka) as it:
        it.api.move("k-1", 1, at_muster=True)
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1"))
        client = await Client.connect(it.port)
        asked = {"key_type": 0, "coordinator_keys": ("k-1", "k-2")}
        client.writer.write(framed(frames.request(apis.FIND_COORDINATOR, 4, asked, 1)))
        _, nodes = read_coordinators(4, await client.receive())
        assert {each.key: each.node_id for each in nodes} == {"k-1": 1_000_001, "k-2": 0}
        client.close()


async def test_groups_are_listed_at_their_side_and_not_while_that_is_not_known() -> None:
    async def kafka(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        groups = tuple([{"group_id": each, "protocol_type": "consumer"} for each in ("k-1", "k-2", "x")])
        return framed(frames.answer(key, version, {"error_code": 0, "groups": groups}, correlation_id))

    async def listed(client: Client) -> tuple[int, list[str]]:
        client.send(apis.LIST_GROUPS, 0, 1)
        answer = await client.receive()
        (code,) = struct.unpack_from(">h", answer, 4)
        return code, [each for each in ("k-1", "k-2", "x") if each.encode() in answer]

    async with site(kafka) as it:
        it.api.move("k-1", 1, at_muster=True)
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1"))
        client = await Client.connect(it.port)
        it.api.fences["k-2"] = 1  # it is Kafka's until it has moved
        assert await listed(client) == (0, ["k-2", "x"])
        it.api.leads = ()
        await wait_for(lambda: it.gateway.moves.held == 0)
        assert await listed(client) == (int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), [])
        client.close()


async def test_configs_are_listed_with_their_groups_side_and_not_while_that_is_not_known() -> None:
    async def kafka(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        rows = tuple([{"resource_type": 32, "resource_name": each} for each in ("k-1", "k-2", "x")])
        return framed(frames.answer(key, version, {"error_code": 0, "config_resources": rows}, correlation_id))

    async def muster(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        rows = ({"resource_type": 32, "resource_name": "k-1"},)
        return framed(frames.answer(key, version, {"error_code": 0, "config_resources": rows}, correlation_id))

    async def listed(client: Client) -> tuple[int, list[str]]:
        client.writer.write(framed(frames.request(apis.LIST_CONFIG_RESOURCES, 1, {"resource_types": ()})))
        answer = read_config_resources(await client.receive())
        return answer.error_code, [each.name for each in answer.resources]

    async with site(kafka, pod=muster) as it:
        it.api.move("k-1", 1, at_muster=True)
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1"))
        client = await Client.connect(it.port)
        assert await listed(client) == (0, ["k-2", "x", "k-1"])
        it.api.leads = ()
        await wait_for(lambda: it.gateway.moves.held == 0)
        assert await listed(client) == (int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), [])
        client.close()


async def test_the_next_leader_is_found() -> None:
    first, second = PodApi(), PodApi(range(0))
    async with second.listening(), site(api=first) as it:
        calls = it.gateway._lease_calls
        known = calls._servers()
        calls._servers = lambda: (*known, ("127.0.0.1", second.port))
        await wait_for(lambda: it.gateway.moves.held == PARTITIONS)
        second.epoch = 2
        first.leads, second.leads = range(0), range(PARTITIONS)
        await wait_for(lambda: set(calls._leaders.values()) == {("127.0.0.1", second.port)})
        assert it.gateway.moves.held == PARTITIONS  # no lease has ended in between
        first.status = 404
        rounds = len(second.asked)
        await wait_for(lambda: len(second.asked) > rounds + 10)
        assert it.gateway.moves.held == PARTITIONS
        assert {each.gateway for each in (*first.asked, *second.asked)} == {it.gateway.moves.gateway}
        assert first.asked[0].movable == ("k-",)


async def test_while_a_group_is_fenced_the_gateway_asks_often() -> None:
    api = PodApi()
    api.lease_ms = 30_000
    async with site(api=api) as it:
        await wait_for(lambda: it.gateway.moves.held == PARTITIONS)
        it.api.fences["k-1"] = 7
        it.gateway._lease_calls._soon.set()  # instead of four seconds later
        await wait_for(lambda: 7 in it.api.drained)
        it.api.move("k-1", 1, at_muster=True)
        await wait_for(lambda: it.gateway.moves.is_at_muster("k-1"))
        assert not it.gateway.moves.is_fenced
        await wait_for(lambda: not it.gateway._lease_calls._calls)
        rounds = len(it.api.asked)
        await asyncio.sleep(0.2)
        assert len(it.api.asked) <= rounds + 1  # of some ten


@pytest.mark.parametrize("owner", [pod(), operator(), pod(cluster="local/other")])
async def test_leases_come_from_pods_of_the_cluster_alone(tmp_path: Path, owner: Member) -> None:
    own = Authority(tmp_path)
    files = own.write("pod", owner)
    own.write("gateway", reader())
    api = PodApi()
    api.tls = server_context(files, check=only(CLUSTER, (Role.READER,)))
    tls = {"muster_api_tls_dir": str(tmp_path / "gateway"), "muster_api_cluster": CLUSTER}
    async with site(api=api, **tls) as it:
        if owner == pod():
            await wait_for(lambda: it.gateway.moves.held == PARTITIONS)
        else:
            await wait_for(lambda: it.gateway._lease_calls._failing)
            assert not api.asked


async def test_a_pod_with_another_number_of_partitions_gives_no_lease() -> None:
    async with site() as it:
        await wait_for(lambda: it.gateway.moves.held == PARTITIONS)
        assert not it.gateway.moves.learn_partitions(PARTITIONS + 1)
        assert it.gateway.moves.partitions == PARTITIONS


async def test_two_starts_of_a_gateway_have_two_names() -> None:
    async with site() as it, site() as other:
        assert it.gateway.moves.gateway != other.gateway.moves.gateway


def _heartbeat(group: str) -> bytes:
    """Body of Heartbeat v0."""
    return struct.pack(f">h{len(group)}sih1s", len(group), group.encode(), 1, 1, b"m")
