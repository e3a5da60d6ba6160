"""One client's connection over real sockets: order, back-pressure, ends, and hostile input from both sides."""

from __future__ import annotations

import asyncio
import inspect
import struct
from typing import Any

import pytest
from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, framed, gateway, plain

from muster_coordinator.tuning.descriptors import DescriptorShares, descriptor_shares, lowest_free_descriptor
from muster_gateway import apis
from muster_gateway import gateway as gateways

LIST_OFFSETS = 2  # passes


async def echo(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, frame[10:])


def describe(group: str) -> bytes:
    """Body of DescribeGroups v0."""
    return struct.pack(">ih", 1, len(group)) + group.encode()


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def ended(client: Client) -> bool:
    return await client.receive() == b""


async def test_answers_leave_in_the_order_of_the_requests_whoever_is_faster() -> None:
    may_answer = asyncio.Event()

    async def slow(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        await may_answer.wait()
        return plain(correlation_id, struct.pack(">i", 0))

    async with Server(0, echo) as broker, Server(1, slow) as pod, gateway(broker, pod) as (_, port):
        client = await Client.connect(port)
        client.send(apis.DESCRIBE_GROUPS, 0, 1, describe("m-1"))
        client.send(LIST_OFFSETS, 1, 2, b"x" * 3_000_000)  # more than any buffer between
        client.send(apis.DESCRIBE_GROUPS, 0, 3, describe("k-1"))
        client.send(apis.DESCRIBE_GROUPS, 0, 4, describe("m-2"))
        client.send(LIST_OFFSETS, 1, 5, b"last")
        await wait_for(lambda: len(broker.requests) == 3 and len(pod.requests) == 1)
        may_answer.set()
        answers = [await client.receive() for _ in range(5)]
        assert [struct.unpack_from(">i", each)[0] for each in answers] == [1, 2, 3, 4, 5]
        assert answers[1][4:] == b"x" * 3_000_000
        assert answers[4][4:] == b"last"
        client.close()


async def test_answer_that_has_not_begun_ends_with_its_connection() -> None:
    async def answer() -> bytes:
        return b""

    async with Server(0, echo) as broker, gateway(broker) as (under_test, port):
        client = await Client.connect(port)
        await wait_for(lambda: under_test._clients)
        (connection,) = under_test._clients
        coroutine = answer()
        connection.later(None, coroutine)
        connection.close("broker_lost")
        await wait_for(lambda: inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED)
        client.close()


async def test_a_client_that_does_not_read_stops_the_broker() -> None:
    size = 64 << 20
    sent = 0

    async def endless(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return plain(correlation_id, bytes(size))

    async with Server(0, endless) as broker, gateway(broker) as (under_test, port):
        client = await Client.connect(port)
        client.send(LIST_OFFSETS, 1, 1)
        await wait_for(lambda: len(broker.requests) == 1)
        before = -1
        while sent != before:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.2)
            (writer, *_) = [each for each in broker.connections if each.transport.get_write_buffer_size()]
            sent = size - writer.transport.get_write_buffer_size()
        assert sent < 16 << 20  # what the kernel's buffers took
        (connection,) = under_test._clients
        assert connection._transport.get_write_buffer_size() < 1 << 20
        assert len(await client.receive()) == size + 4
        client.close()


async def test_a_broker_that_does_not_read_stops_the_client() -> None:
    stuck = asyncio.Event()

    async def never(key: int, version: int, correlation_id: int, frame: bytes) -> None:
        await stuck.wait()

    async with Server(0, never) as broker, gateway(broker) as (under_test, port):
        client = await Client.connect(port)
        client.send(LIST_OFFSETS, 1, 1)
        await wait_for(lambda: broker.requests)
        client.send(LIST_OFFSETS, 1, 2, bytes(64 << 20))
        before = -1
        left = client.writer.transport.get_write_buffer_size()
        while left != before:
            before = left
            await asyncio.sleep(0.2)
            left = client.writer.transport.get_write_buffer_size()
        assert left > 40 << 20
        (connection,) = under_test._clients
        assert connection._broker._transport.get_write_buffer_size() < 1 << 20
        stuck.set()
        client.close()


async def test_no_more_requests_are_read_than_may_wait() -> None:
    stuck = asyncio.Event()

    async def later(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        await stuck.wait()
        return plain(correlation_id)

    async with Server(0, later) as broker, gateway(broker, max_in_flight_requests="5") as (under_test, port):
        client = await Client.connect(port)
        for number in range(5):
            client.send(LIST_OFFSETS, 1, number)
        (connection,) = [each async for each in _clients(under_test)]
        await wait_for(lambda: len(connection._slots) == 5)
        for number in range(5, 50):
            client.send(LIST_OFFSETS, 1, number)
        await asyncio.sleep(0.2)
        assert len(connection._slots) == 5
        stuck.set()
        answers = [struct.unpack(">i", await client.receive())[0] for _ in range(50)]
        assert answers == list(range(50))
        client.close()


async def _clients(under_test: Any) -> Any:
    await wait_for(lambda: under_test._clients)
    for each in tuple(under_test._clients):
        yield each


async def test_a_client_that_sends_no_more_gets_its_answers() -> None:
    async with Server(0, echo) as broker, gateway(broker) as (_, port):
        client = await Client.connect(port)
        client.send(LIST_OFFSETS, 1, 1, b"a")
        client.send(LIST_OFFSETS, 1, 2, b"b")
        client.writer.write_eof()
        assert [await client.receive() for _ in range(3)] == [plain(1, b"a")[4:], plain(2, b"b")[4:], b""]


async def test_a_broker_that_is_gone_ends_its_own_clients() -> None:
    broker = Server(0, echo)
    async with broker, gateway(broker) as (under_test, port):
        told = under_test.nodes.broker_address(0)
        client, waiting = await Client.connect(told[1]), await Client.connect(port)
        for each in (client, waiting):
            each.send(LIST_OFFSETS, 1, 1)
            assert await each.receive()
        broker.drop_connections()
        assert await ended(client)
        waiting.send(LIST_OFFSETS, 1, 2)  # it belongs to no broker, and goes on
        assert await waiting.receive() == plain(2)[4:]
        waiting.close()


async def test_a_broker_that_cannot_be_reached_ends_the_connection() -> None:
    async with Server(0, echo) as broker, gateway(broker) as (under_test, _):
        told = under_test.nodes.broker_address(0)
        await broker.__aexit__()
        client = await Client.connect(told[1])
        client.send(LIST_OFFSETS, 1, 1)
        assert await ended(client)
        await wait_for(lambda: under_test.ended["broker_not_reachable"] == 1)


GARBAGE = {
    "another correlation id": plain(999),
    "a negative length": struct.pack(">ii", -5, 1),
    "no room for a correlation id": struct.pack(">ii", 3, 1),
    "an answer that nobody asked for": plain(1) + plain(2),
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_a_broker_that_sends_garbage_costs_that_connection_only(what: str) -> None:
    async def garbage(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return GARBAGE[what] if frame.endswith(b"bad") else plain(correlation_id)

    async with Server(0, garbage) as broker, gateway(broker) as (under_test, port):
        good, bad = await Client.connect(port), await Client.connect(port)
        bad.send(LIST_OFFSETS, 1, 1, b"bad")
        while not await ended(bad):
            pass
        await wait_for(lambda: under_test.ended["broker_answer_malformed"] == 1)
        good.send(LIST_OFFSETS, 1, 7)
        assert await good.receive() == plain(7)[4:]
        good.close()


@pytest.mark.parametrize("key", [apis.METADATA, apis.DESCRIBE_CLUSTER, apis.FIND_COORDINATOR, apis.FETCH])
async def test_an_answer_that_must_be_read_and_cannot_is_never_passed_on(key: int) -> None:
    version = apis.RULES[key].max_version

    async def garbage(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return plain(correlation_id, b"\xff" * 100)

    request = {
        apis.METADATA: {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
        apis.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": False, "endpoint_type": 1},
        apis.FIND_COORDINATOR: {"key_type": 0, "coordinator_keys": ["g"]},
        apis.FETCH: {"max_wait": 1, "min_bytes": 1, "topics": (), "forgotten_topics_data": ()},
    }[key]
    async with Server(0, garbage) as broker, gateway(broker) as (under_test, port):
        client = await Client.connect(port)
        frame = frames.request(key, version, {**request, "include_fenced_brokers": False})
        client.writer.write(struct.pack(">i", len(frame)) + frame)
        got = await asyncio.wait_for(client.reader.read(), 20)
        assert b"\xff" * 20 not in got
        await wait_for(lambda: under_test.ended["broker_answer_malformed"] + under_test.ended["upstream_failed"] == 1)


HOSTILE = {
    "an unknown key": struct.pack(">ihhi", 100, 999, 0, 1),
    "a negative length": struct.pack(">i", -1),
    "a frame that is too large": struct.pack(">ihhi", 1 << 30, apis.METADATA, 1, 1),
    "a group that is no string": struct.pack(">ihhihh", 12, apis.HEARTBEAT, 0, 1, -1, 500) + bytes(2),
    "a client id of no size": struct.pack(">ihhihh", 12, apis.HEARTBEAT, 0, 1, -7, 500) + bytes(2),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_client_that_sends_garbage_costs_its_own_connection_only(what: str) -> None:
    async with Server(0, echo) as broker, gateway(broker) as (_, port):
        good, bad = await Client.connect(port), await Client.connect(port)
        bad.writer.write(HOSTILE[what])
        assert await ended(bad)
        good.send(LIST_OFFSETS, 1, 7)
        assert await good.receive() == plain(7)[4:]
        good.close()


async def test_one_connection_too_many_is_closed() -> None:
    async with Server(0, echo) as broker, gateway(broker, max_connections="2") as (under_test, port):
        clients = [await Client.connect(port) for _ in range(2)]
        await wait_for(lambda: len(under_test._clients) == 2)
        assert await ended(await Client.connect(port))
        clients[0].send(LIST_OFFSETS, 1, 7)
        assert await clients[0].receive()
        for each in clients:
            each.close()


async def test_connection_is_closed_when_descriptors_are_needed_for_those_to_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = descriptor_shares().limit
    relayed = lowest_free_descriptor(limit) + 15
    monkeypatch.setattr(gateways, "descriptor_shares", lambda: DescriptorShares(limit, limit, limit, relayed))
    async with Server(0, echo) as broker, gateway(broker) as (under_test, port):
        first = await Client.connect(port)
        clients = [await Client.connect(port) for _ in range(20)]
        assert await ended(clients[-1])
        assert under_test.ended["no_descriptors"] > 5
        first.send(LIST_OFFSETS, 1, 7)
        assert await first.receive()
        for each in (first, *clients):
            each.close()


async def test_the_connection_that_holds_most_is_closed_when_all_hold_too_much() -> None:
    async with Server(0, echo) as broker, gateway(broker, max_held_bytes="1048576") as (under_test, port):
        good, bad = await Client.connect(port), await Client.connect(port)
        good.writer.write(struct.pack(">ihhi", 50_000, apis.METADATA, 1, 1) + bytes(20_000))
        bad.writer.write(struct.pack(">ihhi", 10_000_000, apis.METADATA, 1, 1) + bytes(3_000_000))
        assert await ended(bad)
        assert under_test.ended["aborted"] == 1
        assert len(under_test._clients) == 1
        good.close()


async def test_an_idle_connection_is_closed() -> None:
    async with Server(0, echo) as broker, gateway(broker, connections_max_idle_ms="1000") as (under_test, port):
        assert await ended(await Client.connect(port))
        assert under_test.ended["idle"] == 1


async def test_produce_without_an_answer_does_not_wait_for_one() -> None:
    async def silent(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return b"" if key == apis.PRODUCE else plain(correlation_id)

    async with Server(0, silent) as broker, gateway(broker) as (_, port):
        client = await Client.connect(port)
        client.send(apis.PRODUCE, 3, 1, struct.pack(">hhii", -1, 0, 1000, 0))
        client.send(LIST_OFFSETS, 1, 2)
        assert await client.receive() == plain(2)[4:]
        assert [key for key, _ in broker.requests] == [apis.PRODUCE, LIST_OFFSETS]
        client.close()


def listed(*groups: str) -> bytes:
    """Answer to ListGroups v0, after its correlation id."""
    each = [struct.pack(">h", len(group)) + group.encode() + struct.pack(">h", 0) for group in groups]
    return struct.pack(">hi", 0, len(groups)) + b"".join(each)


async def test_each_group_is_listed_by_the_nodes_of_the_coordinator_that_serves_it() -> None:
    """Kafka may have old groups with a prefix of Muster, and Muster shows those that it mirrors."""

    async def both(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return plain(correlation_id, listed("m-1", "k-1", "m-2"))

    async with Server(0, both) as broker, Server(1, both) as pod, gateway(broker, pod) as (under_test, port):
        shown = under_test.nodes.shown_pod(1)
        for asked, expected in ((port, ("k-1",)), (shown.port, ("m-1", "m-2"))):
            client = await Client.connect(asked)
            client.send(apis.LIST_GROUPS, 0, 3)
            assert await client.receive() == plain(3, listed(*expected))[4:]
            client.close()


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (apis.DESCRIBE_CONFIGS, 4),
        (apis.ALTER_CONFIGS, 0),
        (apis.ALTER_CONFIGS, 2),
        (apis.INCREMENTAL_ALTER_CONFIGS, 1),
    ],
)
async def test_configs_of_groups_at_muster_are_asked_of_a_pod(key: int, version: int) -> None:
    async def stay(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        rows = "results" if key == apis.DESCRIBE_CONFIGS else "responses"
        return framed(frames.answer(key, version, {rows: ()}, correlation_id))

    front = Server(0, stay)
    async with front as broker, Server(1, stay) as pod, gateway(broker, pod) as (_, port):
        client = await Client.connect(port)
        for kind, name, server in ((32, "m-1", pod), (32, "k-1", broker), (2, "m-1", broker), (4, "0", broker)):
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None, "configs": ()}
            asked = {"resources": (resource,), "include_synonyms": True, "include_documentation": False}
            asked["validate_only"] = False
            client.writer.write(framed(frames.request(key, version, asked)))
            assert len(await client.receive()) > 4
            assert [key for key, _ in server.requests] == [key]
            server.requests.clear()
        client.close()


async def test_members_of_the_consumer_protocol_go_to_the_coordinator_of_their_group() -> None:
    async def stay(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        answer = {"error_code": 0, "error_message": None, "member_id": "a", "member_epoch": 1, "assignment": None}
        answer |= {"heartbeat_interval": 5_000}
        return framed(frames.answer(apis.CONSUMER_GROUP_HEARTBEAT, 1, answer, correlation_id))

    front = Server(0, stay)
    async with front as broker, Server(1, stay) as pod, gateway(broker, pod) as (_, port):
        client = await Client.connect(port)
        for group, server in (("m-1", pod), ("k-1", broker)):
            joining = {"group_id": group, "member_id": "a", "member_epoch": 0, "rebalance_timeout": 1}
            more = {"subscribed_topic_names": ("t",), "topic_partitions": (), "server_assignor": None}
            client.writer.write(framed(frames.request(apis.CONSUMER_GROUP_HEARTBEAT, 1, {**joining, **more})))
            assert len(await client.receive()) > 4
            assert [key for key, _ in server.requests] == [apis.CONSUMER_GROUP_HEARTBEAT]
            server.requests.clear()
        client.close()


@pytest.mark.parametrize(("allowed", "answered"), [("0", 35), ("1", 0)])
async def test_transactional_commits_go_to_muster_where_that_was_allowed(allowed: str, answered: int) -> None:
    body = struct.pack(">h1sh3sqhi", 1, b"t", 3, b"m-1", 1, 0, 1)
    body += struct.pack(">h1siiqh", 1, b"o", 1, 0, 5, -1)
    answer = struct.pack(">iih1siih", 0, 1, 1, b"o", 1, 0, answered)

    async def commit(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return plain(correlation_id, answer)

    front = Server(0, echo)
    async with (
        front as broker,
        Server(1, commit) as pod,
        gateway(broker, pod, muster_transactions=allowed) as (_, port),
    ):
        client = await Client.connect(port)
        client.send(apis.TXN_OFFSET_COMMIT, 0, 3, body)
        assert await client.receive() == plain(3, answer)[4:]
        assert len(pod.requests) == int(allowed)
        client.close()


async def test_answer_of_a_pod_that_is_too_large_is_not_asked_for_again() -> None:
    """It would be as large again, until the time for a failover is over."""

    async def large(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        return struct.pack(">ii", 1 << 30, correlation_id) + bytes(1000)

    async with Server(0, echo) as broker, Server(1, large) as pod, gateway(broker, pod) as (under_test, port):
        client = await Client.connect(port)
        client.send(apis.DESCRIBE_GROUPS, 0, 1, struct.pack(">ih3s", 1, 3, b"m-1"))
        while not await ended(client):
            pass
        await wait_for(lambda: under_test.ended["muster_failed"] == 1)
        assert [key for key, _ in pod.requests].count(apis.DESCRIBE_GROUPS) == 1
