"""The stream of a broker, cut into answers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gateway import frames

from muster_gateway import apis
from muster_gateway.answers import AnswerCutter, Pass, Whole
from muster_gateway.errors import UpstreamError
from muster_gateway.hints import HintRewriter
from muster_gateway.slots import framed

FEW = settings(max_examples=25)

LIMIT = 5000
PLAIN = struct.pack(">i", 1) + bytes(7000)
EMPTY = struct.pack(">i", 2)
READ = struct.pack(">i", 3) + bytes(3000)
HINTED = frames.answer(apis.FETCH, 17, {"error_code": 0, "session_id": 3, "responses": ()}, 4)
STREAM = (PLAIN, EMPTY, READ, HINTED)


class Told:
    """Implements `AnswerSink`. `later`: answers that may not pass at first."""

    def __init__(self, later: tuple[int, ...] = ()) -> None:
        self.passed = bytearray()
        self.wholes: list[bytes] = []
        self.later = set(later)

    def answer_begins(self, correlation_id: int) -> Pass | Whole | None:
        if correlation_id in self.later:
            return None
        if correlation_id == 3:
            return Whole()
        return Pass(HintRewriter(apis.FETCH, {}.get) if correlation_id == 4 else None)

    def answer_bytes(self, chunk: bytes | memoryview, last: bool) -> None:
        self.passed += chunk

    def answer_whole(self, frame: bytes) -> None:
        self.wholes.append(frame)


def feed(cutter: AnswerCutter, pieces: list[bytes]) -> None:
    for piece in pieces:
        cutter.feed(piece)


@FEW
@given(data=st.data())
def test_every_cut_of_the_stream_gives_the_same(data: st.DataObject) -> None:
    order = data.draw(st.permutations(STREAM))
    sink = Told()
    cutter = AnswerCutter(sink, LIMIT)
    feed(cutter, data.draw(frames.chunks(b"".join(map(framed, order)))))
    assert bytes(sink.passed) == b"".join(framed(each) for each in order if each is not READ)
    assert sink.wholes == [READ]
    assert cutter.held == 0


@FEW
@given(data=st.data())
def test_an_answer_out_of_turn_waits_and_nothing_is_lost(data: st.DataObject) -> None:
    order = data.draw(st.permutations(STREAM))
    waiting = data.draw(st.sampled_from([1, 2, 3, 4]))
    sink = Told(later=(waiting,))
    cutter = AnswerCutter(sink, LIMIT)
    feed(cutter, data.draw(frames.chunks(b"".join(map(framed, order)))))
    assert cutter.blocked
    before = [each for each in order[: [each[3] for each in order].index(waiting)] if each is not READ]
    assert bytes(sink.passed) == b"".join(map(framed, before))
    sink.later.clear()
    cutter.resume()
    assert not cutter.blocked
    assert bytes(sink.passed) == b"".join(framed(each) for each in order if each is not READ)
    assert sink.wholes == [READ]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">ii", -1, 1),
        struct.pack(">ii", 3, 1),
        struct.pack(">ii", LIMIT + 1, 3),
        struct.pack(">ii", 8, 4) + b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    for pieces in ([data], frames.one_by_one(data)):
        with pytest.raises(UpstreamError):
            feed(AnswerCutter(Told(), LIMIT), pieces)
