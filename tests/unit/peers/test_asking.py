"""Pods that ask one another over the network between pods: who is answered, and who is not (ADR 34)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.peers import CLUSTER, PeerPod, connect_raw, image, pods, until

from muster_coordinator.peers.asking import Asking
from muster_coordinator.peers.frames import ASK, encode_hello

FRAME = b"\x00\x00\x00\x03abc"


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Caller:
    """What one connection was told."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.reasons: list[str] = []

    async def ask(self, pod: PeerPod, name: str) -> Asking:
        return await pod.network.ask(name, self.answers.append, self.reasons.append, 20)


async def test_pod_that_shares_nothing_is_asked_and_the_connection_of_its_replicas_stays() -> None:
    a, b = PeerPod("a"), PeerPod("b")
    await a.start()
    await b.start(asked=Echo)
    for pod in (a, b):
        pod.network.update(image({each.name: each.network.address for each in (a, b)}, places=()))
    assert a.network.states == {}
    caller = Caller()
    link = await caller.ask(a, "b")
    link.send(FRAME)
    link.send(FRAME)
    await until(lambda: caller.answers == [b"abc", b"abc"])
    for pod in (a, b):
        pod.network.update(image({each.name: each.network.address for each in (a, b)}, version=2))
    a.send("b", 1)
    await until(lambda: b.replicas.numbers == [1])
    again = await caller.ask(a, "b")
    again.send(FRAME)
    await until(lambda: len(caller.answers) == 3)
    a.send("b", 2)
    await until(lambda: b.replicas.numbers == [1, 2])
    assert b.network.counters.errors == {}
    for pod in (a, b):
        await pod.network.stop()


async def test_pod_without_an_address_cannot_be_asked() -> None:
    async with pods("a", "b") as (a, _):
        with pytest.raises(ConnectionError, match="address of c is not known"):
            await Caller().ask(a, "c")


async def test_pod_that_serves_nothing_says_so_by_closing() -> None:
    async with pods("a", "b") as (a, b):
        caller = Caller()
        (await caller.ask(a, "b")).send(FRAME)
        await until(lambda: len(caller.reasons) == 1)
        assert (caller.answers, b.network.counters.errors) == ([], {"asks": 1})


@pytest.mark.parametrize(
    ("cluster", "caller", "to", "reason"),
    [
        ("another", "a", "b", "wrong_cluster"),
        (CLUSTER, "a", "c", "wrong_pod"),
        (CLUSTER, "b", "b", "same_name"),
    ],
)
async def test_stranger_is_not_answered(cluster: str, caller: str, to: str, reason: str) -> None:
    b = PeerPod("b")
    served: list[Echo] = []
    await b.start(asked=lambda: served.append(Echo()) or served[-1])  # type: ignore[func-returns-value]
    b.network.update(image({"b": b.network.address}))
    reader, writer = await connect_raw(b.network.address)
    writer.write(encode_hello(cluster, caller, "uid", "127.0.0.1:1", to, ASK))
    async with asyncio.timeout(20):
        await reader.read()  # its own hello, and the end
    assert (b.network.counters.errors, served) == ({reason: 1}, [])
    writer.close()
    await b.network.stop()


async def test_answer_of_another_pod_is_none() -> None:
    """It listens now where the pod was that is meant."""
    a, c = PeerPod("a"), PeerPod("c")
    await a.start()
    await c.start(asked=Echo)
    a.network.update(image({"a": a.network.address, "b": c.network.address}, places=()))
    caller = Caller()
    (await caller.ask(a, "b")).send(FRAME)
    await until(lambda: len(caller.reasons) == 1)
    assert caller.answers == []
    for pod in (a, c):
        await pod.network.stop()
