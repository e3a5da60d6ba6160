"""Whoever asks another pod is told once: the answer, or that there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster_coordinator.pod import pod_connections
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.requests.cluster import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from muster_coordinator.wire import k27_write_txn_markers as k27
from muster_coordinator.wire.framing import encode_response_frame

VERSION = k27.API.max_version
LIMIT_S = 20.0


class Link:
    """In place of `peers.asking.Asking`."""

    def __init__(self, received: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        self.received, self.lost = received, lost
        self.sent: list[bytes] = []
        self.answered = 0
        self.is_closed = False

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def close(self) -> None:
        self.is_closed = True

    def answer(self, producer_id: int) -> None:
        """To the oldest request without an answer; to the last one again if there is none."""
        correlation_id = int.from_bytes(self.sent[min(self.answered, len(self.sent) - 1)][8:12], "big")
        self.answered += 1
        body = k27.API.encode_response(VERSION, WriteTxnMarkersResponse(((producer_id, ()),)))
        self.received(encode_response_frame(k27.API, VERSION, correlation_id, body)[4:])


class Network:
    """`fails`: no pod can be reached. `breaks`: a connection ends before anybody has used it."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.fails = self.breaks = False

    async def ask(self, pod: str, received: Callable[[bytes], None], lost: Callable[[str], None], _: float) -> Any:
        if self.fails:
            raise ConnectionRefusedError("nobody listens")
        link = Link(received, lost)
        self.links.append(link)
        if self.breaks:
            link.is_closed = True
            lost("it breaks at once")
        return link


class Caller:
    def __init__(self, answer_timeout_s: float = LIMIT_S) -> None:
        self.network = Network()
        self.connections = PodConnections(self.network, answer_timeout_s)
        self.told: list[int | None] = []

    def ask(self) -> None:
        body = k27.encode_request(VERSION, WriteTxnMarkersRequest(()))

        def told(answer: WriteTxnMarkersResponse | None) -> None:
            self.told.append(None if answer is None else answer.markers[0][0])

        self.connections.ask("pod-1", k27.API, VERSION, body, k27.decode_response, told)

    async def asked(self, count: int) -> Link:
        """The link, when it has sent so many requests."""
        await until(lambda: bool(self.network.links) and len(self.network.links[-1].sent) == count)
        return self.network.links[-1]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.001)


async def test_answers_go_to_those_who_asked_in_their_order() -> None:
    caller = Caller()
    for _ in range(3):
        caller.ask()
    link = await caller.asked(3)
    for producer_id in (7, 8, 9):
        link.answer(producer_id)
    assert (caller.told, len(caller.network.links)) == ([7, 8, 9], 1)


async def test_late_answer_ends_the_connection_and_the_next_request_has_another() -> None:
    caller = Caller(answer_timeout_s=0.05)
    caller.ask()
    caller.ask()
    link = await caller.asked(2)
    await until(lambda: caller.told == [None, None])
    assert link.is_closed
    caller.ask()
    await until(lambda: len(caller.network.links) == 2)
    (await caller.asked(1)).answer(7)
    assert caller.told == [None, None, 7]


async def test_answer_to_another_request_ends_the_connection() -> None:
    caller = Caller()
    caller.ask()
    caller.ask()
    link = await caller.asked(2)
    link.answered = 1
    link.answer(8)
    assert (caller.told, link.is_closed) == ([None, None], True)


@pytest.mark.parametrize("frame", [b"", bytes(4), b"\0\0\0\1\xff\xff\xff\xff"])
async def test_answer_that_cannot_be_read_is_none(frame: bytes) -> None:
    caller = Caller()
    caller.ask()
    link = await caller.asked(1)
    link.received(frame)
    assert (caller.told, link.is_closed) == ([None], True)


async def test_answer_that_nobody_waits_for_ends_the_connection() -> None:
    caller = Caller()
    caller.ask()
    link = await caller.asked(1)
    link.answer(7)
    link.answer(8)
    assert (caller.told, link.is_closed) == ([7], True)


async def test_pod_that_cannot_be_reached_is_dialled_again_for_the_next_request() -> None:
    caller = Caller()
    caller.network.fails = True
    caller.ask()
    await until(lambda: caller.told == [None])
    caller.network.fails = False
    caller.ask()
    (await caller.asked(1)).answer(7)
    assert caller.told == [None, 7]


async def test_connection_that_breaks_before_it_is_used_is_not_kept() -> None:
    caller = Caller()
    caller.network.breaks = True
    caller.ask()
    await until(lambda: caller.told == [None])
    caller.network.breaks = False
    caller.ask()
    await until(lambda: len(caller.network.links) == 2)
    (await caller.asked(1)).answer(7)
    assert caller.told == [None, 7]


async def test_one_request_too_many_is_refused_and_the_others_wait_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_connections, "WAITING_MAX", 2)
    caller = Caller()
    for _ in range(3):
        caller.ask()
    assert caller.told == [None]
    link = await caller.asked(2)
    link.answer(7)
    link.answer(8)
    assert caller.told == [None, 7, 8]


async def test_nobody_is_told_anything_when_the_pod_ends() -> None:
    caller = Caller(answer_timeout_s=0.05)
    caller.ask()
    link = await caller.asked(1)
    caller.ask()
    caller.connections.stop()
    time_s = asyncio.get_running_loop().time
    over_s = time_s() + 0.1
    await until(lambda: time_s() > over_s)  # when each answer would be late
    link.answer(7)
    assert (caller.told, link.is_closed) == ([], True)
