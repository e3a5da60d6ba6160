"""What a watch stream takes of the bytes of a pod, however they are cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest
import uvloop
from tests.unit.podapi.fake_pod import FakePod

from muster_coordinator.podapi.client import (
    PodApiError,
    PodClient,
    PodProtocolError,
    PodRefusedError,
    PodTimeoutError,
    PodUnreachableError,
    new_session,
)
from muster_coordinator.podapi.models import HeartbeatEvent, StatusEvent
from muster_coordinator.podapi.stream import MAX_HEAD_BYTES, MAX_LINE_BYTES, MOST_EVENTS, Body, BrokenStreamError, Lines

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HEARTBEAT = msgspec.json.encode(HeartbeatEvent(now=1)) + b"\n"
STATUS = msgspec.json.encode(StatusEvent(FakePod("pod-0", 0).status())) + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def pod_that_says(*pieces: bytes, then_ends: bool = True) -> AsyncIterator[PodClient]:
    """Each of the pieces alone."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if not then_ends:
            await reader.read()
        writer.close()

    asked: list[bytes] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with new_session() as session:
        yield PodClient(session, "pod-0", f"{host}:{port}")
    server.close()
    assert asked[0].startswith(b"GET /v1/watch?operator HTTP/1.1\r\n")
    assert b"\r\nMuster-Pod: pod-0\r\n" in asked[0]


async def told(client: PodClient) -> tuple[list[str], PodApiError | None]:
    """Kinds of the events, and how the stream broke, if it did."""
    kinds: list[str] = []
    try:
        async with aclosing(client.watch(5.0)) as events:
            async for each in events:
                kinds.append(type(each).__name__)
    except PodApiError as error:
        return kinds, error
    return kinds, None


async def test_stream_that_comes_byte_by_byte_is_the_same() -> None:
    whole = OK + chunk(HEARTBEAT) + chunk(STATUS[:7]) + chunk(STATUS[7:] + STATUS) + b"0\r\n\r\n"
    for pieces in ((whole,), tuple(whole[at : at + 1] for at in range(len(whole)))):
        async with pod_that_says(*pieces) as client:
            assert await told(client) == (["StatusEvent", "StatusEvent"], None)


def test_event_loop_of_the_processes_is_the_same_to_it() -> None:
    async def follow() -> None:
        async with pod_that_says(OK + chunk(HEARTBEAT), chunk(STATUS), b"0\r\n\r\n") as client:
            assert await told(client) == (["StatusEvent"], None)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(follow())


async def test_events_of_kinds_of_a_later_version_are_passed_over() -> None:
    async with pod_that_says(OK, chunk(b'{"type":"weather","is":"fine"}\n' + STATUS), b"0\r\n\r\n") as client:
        assert await told(client) == (["StatusEvent"], None)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (OK + chunk(STATUS), PodUnreachableError),
        (OK + chunk(STATUS) + b"zz\r\n", PodUnreachableError),
        (OK + chunk(STATUS) + b"-1\r\n", PodUnreachableError),
        (OK + chunk(STATUS) + b"\r\n" + b"1" * (MAX_HEAD_BYTES + 1), PodUnreachableError),
        (OK + chunk(STATUS) + chunk(b"{}\n"), PodProtocolError),
        (OK + chunk(STATUS) + chunk(b'{"type":"status"}\n'), PodProtocolError),
    ],
)
async def test_stream_that_breaks_off_or_is_none_fails_after_what_came_before(
    answer: bytes, kind: type[PodApiError]
) -> None:
    async with pod_that_says(answer) as client:
        events, error = await told(client)
    assert events == ["StatusEvent"]
    assert type(error) is kind


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n\r\n", b"x" * (MAX_HEAD_BYTES + 1), b"HTTP/1.1 200 OK\r\n", b""])
async def test_answer_that_is_not_http_is_no_stream(answer: bytes) -> None:
    async with pod_that_says(answer) as client:
        events, error = await told(client)
    assert (events, type(error)) == ([], PodUnreachableError)


@pytest.mark.parametrize(
    "framed", [lambda body: b"Content-Length: %d\r\n\r\n%s" % (len(body), body), lambda body: b"\r\n" + body]
)
async def test_refusal_is_told_with_its_reason(framed: Callable[[bytes], bytes]) -> None:
    body = b'{"reason":"WrongPod","message":"this is pod-1"}'
    async with pod_that_says(b"HTTP/1.1 421 Misdirected Request\r\n" + framed(body)) as client:
        _, error = await told(client)
    assert isinstance(error, PodRefusedError)
    assert (error.status, error.reason, error.message) == (421, "WrongPod", "this is pod-1")


async def test_pod_that_says_no_more_is_silent_also_in_the_middle_of_a_line() -> None:
    said = (OK, chunk(STATUS), b"5\r\n{")
    async with pod_that_says(*said, then_ends=False) as client, aclosing(client.watch(1.0)) as events:
        await anext(events)
        with pytest.raises(PodTimeoutError):
            await anext(events)


async def test_no_event_is_lost_to_a_reader_that_is_slow() -> None:
    many = 3 * MOST_EVENTS
    async with pod_that_says(OK, *(chunk(STATUS) for _ in range(many)), b"0\r\n\r\n") as client:
        count = 0
        async with aclosing(client.watch(5.0)) as events:
            async for _ in events:
                count += 1
                if count % MOST_EVENTS == 1:
                    await asyncio.sleep(0.01)
    assert count == many


async def test_reader_that_leaves_closes_the_connection() -> None:
    async with pod_that_says(OK, chunk(STATUS), then_ends=False) as client, aclosing(client.watch(5.0)) as events:
        await anext(events)


def test_line_that_grows_too_long_breaks_the_stream() -> None:
    lines = Lines()
    assert lines.take(b"a\nb") == [b"a"]
    assert lines.take(b"c\n") == [b"bc"]
    lines.take(b"x" * MAX_LINE_BYTES)
    with pytest.raises(BrokenStreamError):
        lines.take(b"x")


def test_sizes_of_chunks_may_have_extensions_and_lengths_are_numbers() -> None:
    body = Body.of({"transfer-encoding": "Chunked"})
    assert [*body.take(b"2;a=b\r\nab\r\n1\r\nc\r\n0\r\n")] == [b"ab", b"c"]
    assert body.has_ended
    with pytest.raises(BrokenStreamError):
        Body.of({"content-length": "-1"})
