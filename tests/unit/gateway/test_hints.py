"""Leader hints of Fetch and Produce answers (KIP-951), in answers that kio wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from tests.unit.gateway import frames
from tests.unit.wire import kio_oracle

from muster_coordinator.wire.errors import WireError
from muster_gateway import apis
from muster_gateway.hints import HintRewriter
from muster_gateway.slots import framed

FEW = settings(max_examples=25)

REAL = "broker-7.kafka.internal.example"
TOLD = {7: ("127.0.0.1", 19007), 8: ("127.0.0.1", 19008)}


def nodes(*hosts: tuple[int, str, str | None]) -> list[dict[str, Any]]:
    return [{"node_id": number, "host": host, "port": 9092, "rack": rack} for number, host, rack in hosts]


def fetched(version: int, endpoints: list[dict[str, Any]], records: bytes = b"r" * 1000) -> bytes:
    aborted = [{"producer_id": 5, "first_offset": 9}] * 2
    partitions: list[dict[str, Any]] = [
        {
            "partition_index": 0,
            "error_code": 6,
            "high_watermark": -1,
            "current_leader": {"leader_id": 7, "leader_epoch": 3},
            "aborted_transactions": aborted,
            "records": b"",
        },
        {"partition_index": 1, "error_code": 0, "high_watermark": 5, "aborted_transactions": None, "records": records},
        {"partition_index": 2, "error_code": 0, "high_watermark": 5, "aborted_transactions": (), "records": None},
    ]
    topics = [{"topic_id": bytes(range(16)), "partitions": partitions}] * 2
    return frames.answer(
        apis.FETCH, version, {"error_code": 0, "session_id": 3, "responses": topics, "node_endpoints": endpoints}
    )


def produced(version: int, endpoints: list[dict[str, Any]]) -> bytes:
    partition = {
        "index": 0,
        "error_code": 6,
        "base_offset": -1,
        "log_append_time": None,
        "log_start_offset": -1,
        "record_errors": [{"batch_index": 1, "batch_index_error_message": "bad"}, {"batch_index": 2}],
        "error_message": "moved",
        "current_leader": {"leader_id": 7, "leader_epoch": 3},
    }
    topics = [{"name": "orders", "partition_responses": [partition, partition]}] * 2
    return frames.answer(apis.PRODUCE, version, {"responses": topics, "node_endpoints": endpoints})


WRITTEN = [
    *((apis.FETCH, version, fetched) for version in (16, 17, 18)),
    *((apis.PRODUCE, version, produced) for version in (10, 11)),
]


def passed(key: int, pieces: list[bytes], told: dict[int, tuple[str, int]] = TOLD) -> bytes:
    """What passes of an answer without its length, for answers cut like that."""
    rewriter = HintRewriter(key, told.get)
    out = b""
    rewriter.feed(sum(map(len, pieces)).to_bytes(4, "big"), False)
    for number, piece in enumerate(pieces, 1):
        out += rewriter.feed(piece, number == len(pieces))
    return out


def passed_at_once(key: int, frame: bytes) -> bytes:
    """What passes of an answer that comes in one piece, without its length."""
    return bytes(HintRewriter(key, TOLD.get).feed(memoryview(framed(frame)), True)[4:])


def outcome(passing: Callable[[], bytes]) -> bytes | None:
    """The bytes that pass; None: the answer cannot be read."""
    try:
        return passing()
    except WireError:
        return None


def read(key: int, version: int, frame: bytes) -> Any:
    kind = kio_oracle.schema(apis.RULES[key].name, version, "response")
    _, begin = entity_reader(kind.__header_schema__)(frame, 0)
    # kio refuses tagged fields that it does not know, which Kafka's clients skip: they stand at the end.
    value, _ = entity_reader(kind)(frame, begin)
    return value


@pytest.mark.parametrize(("key", "version", "written"), WRITTEN)
@FEW
@given(data=st.data())
def test_every_cut_gives_the_same_bytes(key: int, version: int, written: Any, data: st.DataObject) -> None:
    frame = written(version, nodes((7, REAL, "r1"), (8, REAL, None)))
    whole = passed(key, [frame])
    assert len(whole) == len(frame)
    assert passed(key, data.draw(frames.chunks(frame))) == whole
    assert passed(key, frames.one_by_one(frame)) == whole
    assert passed_at_once(key, frame) == whole


@pytest.mark.parametrize(("key", "version", "written"), WRITTEN)
def test_addresses_are_replaced_where_they_fit_exactly(key: int, version: int, written: Any) -> None:
    frame = written(version, nodes((7, "127.0.0.9", "r1"), (8, "127.0.0.8", None)))
    answer = read(key, version, passed(key, [frame]))
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
        (7, "127.0.0.1", 19007, "r1"),
        (8, "127.0.0.1", 19008, None),
    ]
    assert answer.responses == read(key, version, frame).responses


@pytest.mark.parametrize("longer", [2, 3, 20, 100, 128, 129, 130, 200])
def test_shorter_addresses_are_padded_by_a_field_that_no_client_knows(longer: int) -> None:
    real = "x" * (len("127.0.0.1") + longer)
    frame = fetched(17, nodes((7, real, "r1")))
    rewritten = passed(apis.FETCH, [frame])
    assert len(rewritten) == len(frame)
    assert real.encode() not in rewritten
    assert (b"127.0.0.1\x00\x00\x4a\x3f" in rewritten) == (longer != 129)  # 130 bytes: no size of a field fits


@pytest.mark.parametrize(("key", "version", "written"), WRITTEN)
@pytest.mark.parametrize("real", ["h", "10.0.0.1", "127.0.0.12"])
def test_addresses_that_do_not_fit_are_left_out(key: int, version: int, written: Any, real: str) -> None:
    frame = written(version, nodes((7, real, None)))
    rewritten = passed(key, [frame])
    begin = len(written(version, [])) - 1
    # one field of the same size, with a tag that is skipped, and nothing but zeros in it
    assert rewritten[:begin] == frame[:begin]
    assert rewritten[begin : begin + 2] == b"\x01\x7f"
    assert not any(rewritten[begin + 3 :])
    assert len(rewritten) == len(frame)


def test_a_broker_without_an_address_here_is_left_out() -> None:
    rewritten = passed(apis.FETCH, [fetched(16, nodes((7, REAL, None)))], told={})
    assert REAL.encode() not in rewritten


@pytest.mark.parametrize(("key", "version", "written"), WRITTEN)
def test_an_answer_without_hints_passes_as_it_is(key: int, version: int, written: Any) -> None:
    frame = written(version, [])
    assert passed(key, [frame]) == frame


def test_records_pass_before_the_answer_is_complete() -> None:
    frame = fetched(17, nodes((7, REAL, None)), records=b"r" * 1_000_000)
    rewriter = HintRewriter(apis.FETCH, TOLD.get)
    begin = framed(frame)[:500_000]
    assert bytes(rewriter.feed(begin, last=False)) == begin


@pytest.mark.parametrize(("key", "version", "written"), WRITTEN)
@FEW
@given(data=st.data())
def test_garbage_is_an_error_or_passes_in_its_size(key: int, version: int, written: Any, data: st.DataObject) -> None:
    frame = bytearray(written(version, nodes((7, REAL, None))))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(5, len(frame)))]
    garbage = bytes(frame)
    rewritten = outcome(lambda: passed(key, data.draw(frames.chunks(garbage))))
    assert rewritten is None or len(rewritten) == len(garbage)
    assert outcome(lambda: passed_at_once(key, garbage)) == rewritten
