"""The network between pods: order, loss of a pod, slow and wrong ones. Real sockets on loopback."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest
from tests.support.peers import (
    CLUSTER,
    LIMIT_S,
    FakePeer,
    PeerPod,
    ack,
    append,
    connect_raw,
    image,
    introduce,
    log_id,
    pods,
    until,
)

from muster_coordinator.peers import network
from muster_coordinator.peers.frames import (
    FRAME_BYTES_MAX,
    HELLO,
    PING,
    PONG,
    VERSION,
    Hello,
    decode_hello,
    encode_frame,
    encode_hello,
)
from muster_coordinator.peers.holders import Holders
from muster_coordinator.peers.outbound import LARGE_BYTES, PeerTimes
from muster_coordinator.replication.messages import Batch, Seal, encode_message, urgency_of
from muster_coordinator.replication.sets import Sets
from muster_coordinator.tuning.pacing import Urgency

NEVER_SILENT = PeerTimes(silent_ms=60_000, dead_ms=60_000)
"""So that only a closed or refused connection makes a pod lost."""


# -- a log id on two volumes ------------------------------------------------------------------------------------------


async def test_replica_that_two_pods_have_is_refused_by_both_and_by_all_that_hear_both() -> None:
    async with pods("a", "b", "c", times=NEVER_SILENT) as (a, b, c):
        b.replicas.log_ids = {0: log_id("b")}
        a.send("b", 1)
        b.send("a", 2)
        await until(lambda: b.replicas.numbers == [1] and a.replicas.numbers == [2])
        c.replicas.log_ids = {0: log_id("b"), 1: "another"}
        await until(lambda: b.replicas.doubled_here == {0: "b, c"} == c.replicas.doubled_here)
        await until(lambda: log_id("b") in a.network._holders.doubled)
        a.send("b", 3)
        b.send("a", 4)
        c.send("a", 5)
        await until(lambda: 5 in a.replicas.numbers)
        assert (a.replicas.numbers, b.replicas.numbers) == ([2, 5], [1])
        assert (a.network.counters.dropped["doubled"], b.network.counters.dropped["doubled"]) == (1, 1)
        await c.network.stop()
        await until(lambda: b.replicas.doubled_here == {0: ""})
        await until(lambda: not a.network._holders.doubled)
        b.send("a", 6)
        await until(lambda: 6 in a.replicas.numbers)
        assert a.replicas.doubled_here == {}


async def test_replica_of_a_copied_volume_is_refused_with_its_first_message() -> None:
    """Before that pod has said which replicas it has."""
    async with pods("a", "b", "c", times=NEVER_SILENT) as (a, b, c):
        b.send("a", 1)
        await until(lambda: a.replicas.numbers == [1])
        c.network.send(0, ack("b", "a", 2))
        await until(lambda: a.network.counters.dropped["doubled"] == 1)
        b.send("a", 3)
        await until(lambda: a.network.counters.dropped["doubled"] == 2)
        assert a.replicas.numbers == [1]


async def test_late_message_of_a_replica_that_was_there_before_does_not_hide_the_one_that_is_there_now() -> None:
    async with pods("a", "b", "c", times=NEVER_SILENT) as (a, b, c):
        b.send("a", 1)
        b.network.send(0, ack("before", "a", 2))
        b.send("a", 3)
        await until(lambda: a.replicas.numbers == [1, 2, 3])
        c.network.send(0, ack("b", "a", 4))
        await until(lambda: a.network.counters.dropped["doubled"] == 1)


def test_volume_of_a_pod_that_is_lost_may_be_on_another_one() -> None:
    holders, lost = Holders("a"), {"b"}
    holders.announced("b", {0: "x"})
    holders.announced("c", {0: "x"})
    assert not holders.look({}, lost.__contains__)
    lost.clear()
    assert holders.look({}, lost.__contains__)
    assert holders.doubled == {"x": "b, c"}
    lost.add("b")
    assert not holders.look({}, lost.__contains__), "once both were heard, both stay refused"
    holders.left("b")
    assert holders.look({}, lost.__contains__)
    assert not holders.doubled


async def test_replicas_of_a_pod_are_announced_before_its_first_message() -> None:
    a, b = PeerPod("a"), PeerPod("b")
    a.replicas.log_ids = {3: "mine"}
    known: list[str] = []
    b.replicas.receive = lambda partition, message: known.extend(b.network._holders._held["a"].values())  # type: ignore[method-assign]
    try:
        await a.start()
        await b.start()
        introduce(a, b)
        a.send("b", 1)
        await until(lambda: bool(known))
        assert "mine" in known
    finally:
        await a.network.stop()
        await b.network.stop()


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_messages_arrive_in_order_and_with_their_partition() -> None:
    async with pods("a", "b") as (a, b):
        for number in range(3000):
            a.send("b", number, partition=number % 50)
        await until(lambda: len(b.replicas.received) == 3000)
        assert b.replicas.numbers == list(range(3000))
        assert [partition for partition, _ in b.replicas.received] == [n % 50 for n in range(3000)]
        assert b.replicas.received[7][1] == ack("a", "b", 7)
        assert (a.network.counters.messages_sent, b.network.counters.messages_received) == (3000, 3000)


@pytest.mark.interpreted
async def test_what_is_sent_in_one_turn_leaves_with_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pods("a", "b", times=dataclasses.replace(NEVER_SILENT, ping_ms=60_000)) as (a, b):
        (peer,) = a.network._peers.values()
        link, writes = peer._link, []
        assert link is not None
        write = link.write
        monkeypatch.setattr(link, "write", lambda data: (writes.append(data), write(data)))
        for number in range(20):
            a.send("b", number)
        await until(lambda: len(b.replicas.received) == 20)
        assert len(writes) == 1


@pytest.mark.interpreted
async def test_what_an_election_waits_for_leaves_at_once_with_what_was_sent_before() -> None:
    async with pods("a", "b", times=dataclasses.replace(NEVER_SILENT, ping_ms=60_000)) as (a, b):
        (peer,) = a.network._peers.values()
        for number in range(3):
            a.send("b", number)
        assert peer.waiting_bytes > 0
        a.network.send(1, Seal(log_id("a"), log_id("b"), 7))
        assert not peer._out
        a.network.send(2, Seal(log_id("a"), log_id("b"), 8))
        assert peer._out, "the second one in a turn shares a write with those behind it"
        await until(lambda: len(b.replicas.received) == 5)
        a.network.send(3, Seal(log_id("a"), log_id("b"), 9))
        assert not peer._out
        await until(lambda: len(b.replicas.received) == 6)
        assert [each.epoch for _, each in b.replicas.received[-3:]] == [7, 8, 9]


def test_an_election_waits_for_an_append_that_opens_an_epoch_and_for_no_other() -> None:
    sets = Sets((log_id("a"), log_id("b")))
    first = Batch(7, 8, 3, b"", sets)
    others = [append("a", "b", 10), ack("a", "b", 1), msgspec.structs.replace(append("a", "b", 10), batches=())]
    assert urgency_of(msgspec.structs.replace(append("a", "b", 10), batches=(first,))) is Urgency.ELECTION
    assert {urgency_of(message) for message in others} == {Urgency.COMMIT}


async def test_large_message_arrives_whole() -> None:
    async with pods("a", "b", buffer_bytes=1 << 20) as (a, b):
        message = append("a", "b", 8 << 20)
        a.network.send(3, message)
        await until(lambda: len(b.replicas.received) == 1)
        assert b.replicas.received == [(3, message)]


async def test_message_for_a_replica_that_nobody_has_is_dropped_and_counted() -> None:
    async with pods("a", "b") as (a, _):
        a.network.send(0, ack("a", "nobody", 1))
        assert a.network.counters.dropped == {"unknown_replica": 1}


async def test_pod_without_an_image_answers_who_connects_to_it() -> None:
    a, b = PeerPod("a"), PeerPod("b")
    try:
        await a.start()
        await b.start()
        a.network.update(image({"a": a.network.address, "b": b.network.address}))
        await until(lambda: a.network.states == {"b": True})
        a.send("b", 1)
        await until(lambda: b.replicas.numbers == [1])
        await until(lambda: b.network.states == {"a": True})
        b.send("a", 2)
        await until(lambda: a.replicas.numbers == [2])
        assert b.network.lost == ()
    finally:
        await a.network.stop()
        await b.network.stop()


async def test_pod_without_an_address_in_a_newer_image_is_reached_at_its_last_one_while_it_has_replicas() -> None:
    async with pods("a", "b") as (a, b):
        own = {"a": a.network.address}
        a.network.update(image(own, version=2, places=["a", "b"]))
        a.send("b", 1)
        await until(lambda: b.replicas.numbers == [1])
        await b.network.stop()
        await until(lambda: a.network.lost == ("b",))
        a.network.update(image(own, version=3))
        assert a.network.lost == ()
        assert a.network.states == {}


async def test_pods_that_share_no_partition_are_not_connected() -> None:
    async with pods("a", "b") as (a, b):
        addresses = {p.name: p.network.address for p in (a, b)}
        for pod in (a, b):
            pod.network.update(image(addresses, version=2, places=[pod.name]))
        await until(lambda: a.network.states == b.network.states == {})
        c = PeerPod("c")
        try:
            await c.start()
            c.network.update(image(addresses | {"c": c.network.address}, places=["a", "b"]))
            assert c.network.states == {}
        finally:
            await c.network.stop()


# -- loss -------------------------------------------------------------------------------------------------------------


async def test_pod_that_closes_its_connections_is_lost_at_once_and_found_again_after_its_restart() -> None:
    async with pods("a", "b", "c", times=NEVER_SILENT) as (a, b, c):
        address = b.network.address
        await b.network.stop()
        await until(lambda: a.network.lost == c.network.lost == ("b",))
        assert log_id("b") in a.replicas.disconnected_ids
        assert log_id("c") not in a.replicas.disconnected_ids
        assert a.lost_changes == 1
        again = PeerPod("b", uid="second run", times=NEVER_SILENT)
        try:
            await again.start(port=int(address.rpartition(":")[2]))
            again.network.update(image({p.name: p.network.address for p in (a, again, c)}))
            await until(lambda: a.network.lost == c.network.lost == ())
            await until(lambda: all(again.network.states.values()))
            a.send("b", 5)
            again.send("a", 6)
            await until(lambda: again.replicas.numbers == [5] and a.replicas.numbers == [6])
        finally:
            await again.network.stop()


async def test_pod_at_which_nothing_listens_is_lost_and_messages_to_it_are_dropped() -> None:
    a = PeerPod("a", times=NEVER_SILENT)
    try:
        await a.start()
        async with FakePeer("b", to="a") as gone:
            address = gone.address
        a.network.update(image({"a": a.network.address, "b": address}))
        await until(lambda: a.network.lost == ("b",))
        await until(lambda: a.network._peers["b"].state == "waiting")
        a.send("b", 1)
        assert a.network.counters.dropped == {"not_connected": 1}
        assert a.network.waiting_bytes == 0
    finally:
        await a.network.stop()


async def test_silent_pod_is_lost_then_found_when_it_answers_again() -> None:
    times = PeerTimes(ping_ms=20, silent_ms=300, dead_ms=60_000)
    a = PeerPod("a", times=times)
    try:
        await a.start()
        async with FakePeer("b", to="a") as b:
            a.network.update(image({"a": a.network.address, "b": b.address}))
            await until(lambda: a.network.states == {"b": True})
            b.alive = False
            await until(lambda: a.network.lost == ("b",))
            assert a.replicas.disconnected_ids == [log_id("b")]
            b.alive = True
            await until(lambda: a.network.lost == ())
            assert b.connections == 1
    finally:
        await a.network.stop()


async def test_connection_to_a_pod_that_stays_silent_is_made_anew() -> None:
    a = PeerPod("a", times=PeerTimes(ping_ms=10, silent_ms=50, dead_ms=150))
    try:
        await a.start()
        async with FakePeer("b", to="a", alive=False) as b:
            a.network.update(image({"a": a.network.address, "b": b.address}))
            await until(lambda: b.connections >= 3)
            assert a.lost_changes >= 1
    finally:
        await a.network.stop()


async def test_own_stall_makes_nobody_lost() -> None:
    async with pods("a", "b", times=PeerTimes(ping_ms=20, silent_ms=300)) as (a, b):
        changes = a.lost_changes + b.lost_changes
        peer = a.network._peers["b"]
        for _ in range(5):  # as if the loop had stood still: the clock went on, nothing was read
            peer._heard_s -= 0.4
            peer.tick(grace_s=0.4)
        assert not peer.lost
        peer._heard_s -= 0.4
        peer.tick(grace_s=0.0)
        assert peer.lost
        await until(lambda: not peer.lost)
        assert a.lost_changes + b.lost_changes == changes + 2


async def test_pod_that_moved_is_reached_at_its_new_address() -> None:
    async with pods("a", "b") as (a, b):
        await b.network.stop()
        moved = PeerPod("b", uid="elsewhere")
        try:
            await moved.start()
            introduce(a, moved, version=2)
            await until(lambda: a.network.states == {"b": True})
            a.send("b", 1)
            await until(lambda: moved.replicas.numbers == [1])
        finally:
            await moved.network.stop()


# -- slow pods --------------------------------------------------------------------------------------------------------


async def test_slow_pod_costs_bounded_memory_and_delays_no_other() -> None:
    bound = 1 << 20
    a = PeerPod("a", times=NEVER_SILENT, buffer_bytes=bound)
    c = PeerPod("c", times=NEVER_SILENT)
    try:
        await a.start()
        await c.start()
        async with FakePeer("b", to="a", reads=False) as b:
            a.network.update(image({"a": a.network.address, "b": b.address, "c": c.network.address}))
            await until(lambda: a.network.states == {"b": True, "c": True})
            for number in range(300):
                a.network.send(0, append("a", "b", 100_000, number))
                a.send("c", number)
                assert a.network.waiting_bytes <= bound + 200_000
                await asyncio.sleep(0)
            assert a.network.counters.dropped["buffer_full"] > 100
            await until(lambda: c.replicas.numbers == list(range(300)))
    finally:
        await a.network.stop()
        await c.network.stop()


async def test_catching_up_leaves_room_for_the_present() -> None:
    a = PeerPod("a", times=NEVER_SILENT, buffer_bytes=4 << 20)
    try:
        await a.start()
        async with FakePeer("b", to="a", reads=False) as b:
            a.network.update(image({"a": a.network.address, "b": b.address}))
            await until(lambda: a.network.states == {"b": True})
            while not a.network.counters.dropped:
                a.network.send(0, append("a", "b", LARGE_BYTES))
                await asyncio.sleep(0)
            assert a.network.waiting_bytes < 2 << 20
            a.send("b", 1)
            a.network.send(0, append("a", "b", LARGE_BYTES // 2))
            a.network.send(0, append("a", "b", LARGE_BYTES // 2))
            assert a.network.counters.dropped == {"buffer_full": 1}
            a.network.send(0, append("a", "b", LARGE_BYTES))
            assert a.network.counters.dropped == {"buffer_full": 2}
    finally:
        await a.network.stop()


# -- wrong input ------------------------------------------------------------------------------------------------------


def hello(pod: str = "b", to: str = "a", cluster_id: str = CLUSTER, address: str = "127.0.0.1:1") -> bytes:
    return encode_hello(cluster_id, pod, "uid", address, to)


OTHER_VERSION = encode_frame(
    HELLO, msgspec.msgpack.encode(Hello("muster-peer", VERSION + 1, CLUSTER, "b", "u", "h:1", "a"))
)


_ACK = encode_message(ack("b", "a", 1))
NESTED = bytes([_ACK[0] + 1]) + _ACK[1:] + b"\x91" * 3000 + b"\x01"
"""A message with one field more, as of a later version, that is an array in an array and so on."""


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "frame_too_large"),
        (b"\x00\x00\x00\x02ab", "malformed"),
        (encode_frame(HELLO, b"\xc1garbage"), "malformed"),
        (encode_frame(HELLO, b"\x81\xa1x" + b"\x91" * 3000 + b"\x01"), "malformed"),
        (hello() + encode_frame(0, NESTED), "malformed"),
        (encode_frame(0, encode_message(ack("b", "a", 1))), "malformed"),
        (hello().replace(b"muster-peer", b"another-one"), "malformed"),
        (hello(address="no address"), "malformed"),
        (hello(cluster_id="another"), "wrong_cluster"),
        (OTHER_VERSION, "wrong_version"),
        (hello(to="c"), "wrong_pod"),
        (hello(pod="a"), "same_name"),
        (hello() + encode_frame(0, b"\xc1"), "malformed"),
        (hello() + encode_frame(-7), "malformed"),
        (hello() + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "frame_too_large"),
    ],
)
async def test_bad_input_ends_its_own_connection_and_is_counted(sent: bytes, reason: str) -> None:
    async with pods("a", "x") as (a, x):
        reader, writer = await connect_raw(a.network.address)
        first = 4 + int.from_bytes(sent[:4], "big")
        writer.write(sent[:first])
        if sent[first:]:
            await reader.readexactly(8)  # its hello: only then may more follow
            writer.write(sent[first:])
        async with asyncio.timeout(LIMIT_S):
            await reader.read(-1)
        writer.close()
        assert a.network.counters.errors == {reason: 1}
        x.send("a", 1)
        await until(lambda: a.replicas.numbers == [1])


async def test_refused_pod_is_told_whom_it_reached_so_that_it_can_say_why() -> None:
    async with pods("a", "x") as (a, _):
        reader, writer = await connect_raw(a.network.address)
        writer.write(hello(cluster_id="another"))
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read(-1)
        writer.close()
        assert decode_hello(answer[4:]).cluster_id == CLUSTER


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "frame_too_large"),
        (hello(pod="c", to="a"), "wrong_pod"),
        (hello(cluster_id="another"), "wrong_cluster"),
        (hello() + encode_frame(PING), "malformed"),
    ],
)
async def test_wrong_listener_gets_no_message_and_its_pod_is_lost(answer: bytes, reason: str) -> None:
    a = PeerPod("a", times=NEVER_SILENT)
    try:
        await a.start()
        async with FakePeer("b", to="a", hello=answer) as wrong:
            a.network.update(image({"a": a.network.address, "b": wrong.address}))
            a.send("b", 1)
            await until(lambda: a.network.counters.errors[reason] > 0)
            assert a.network.lost == ("b",)
            assert a.network.waiting_bytes == 0  # what waited for the hello is not for whoever comes next
    finally:
        await a.network.stop()


async def test_connection_without_a_hello_is_closed() -> None:
    async with pods("a", "x", times=PeerTimes(connect_ms=20)) as (a, _):
        reader, writer = await connect_raw(a.network.address)
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read(-1) == b""
        writer.close()
        assert a.network.counters.errors == {"no_hello": 1}


async def test_more_connections_than_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pods("a", "x") as (a, x):
        monkeypatch.setattr(network, "INBOUND_MAX", 1)
        reader, writer = await connect_raw(a.network.address)
        async with asyncio.timeout(LIMIT_S):
            try:
                assert await reader.read(-1) == b""
            except ConnectionResetError:
                pass
        writer.close()
        assert a.network.counters.errors == {"too_many_connections": 1}
        x.send("a", 1)
        await until(lambda: a.replicas.numbers == [1])


async def test_two_pods_with_one_name_the_later_connection_counts_and_it_is_said() -> None:
    async with pods("a", "b") as (a, b):
        double = PeerPod("b", uid="another process")
        try:
            await double.start()
            double.network.update(image({"a": a.network.address, "b": double.network.address}))
            await until(lambda: a.network.counters.errors["replaced"] >= 3)
            # Both keep trying, with growing pauses; neither costs the pod its other work.
            a.send("b", 1)
            await until(lambda: b.replicas.numbers == [1])
            assert a.network.counters.errors["replaced"] < 50
            assert len(a.network._inbound) <= 3
        finally:
            await double.network.stop()


async def test_ping_is_answered_on_its_connection() -> None:
    async with pods("a", "x") as (a, _):
        reader, writer = await connect_raw(a.network.address)
        writer.write(hello())
        async with asyncio.timeout(LIMIT_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
            writer.write(encode_frame(PING))
            assert await reader.readexactly(8) == encode_frame(PONG)
        writer.close()


async def test_image_of_another_cluster_ends_the_connections_of_the_old_one() -> None:
    async with pods("a", "b") as (a, b):
        addresses = {p.name: p.network.address for p in (a, b)}
        a.network.update(image(addresses, version=2, cluster_id="another"))
        await until(lambda: a.network.counters.errors["wrong_cluster"] > 0)
        await until(lambda: not a.network._by_pod)
        b.network.update(image(addresses, version=2, cluster_id="another"))
        await until(lambda: a.network.states == {"b": True} and b.network.states == {"a": True})
