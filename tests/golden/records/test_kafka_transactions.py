"""Transaction records against those that Kafka 4.3.1's coordinator wrote, step by step
(kafka-4.3.1-transactions.txt)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from tests.support.golden import kafka_bytes

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.structs import UnknownRecord
from muster_coordinator.records.transaction_log import (
    Partitions,
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from muster_coordinator.transactions.producer_ids import RANGE_BITS, ProducerIds
from muster_coordinator.transactions.states import TransactionEvent
from muster_coordinator.transactions.transitions import (
    completed,
    created,
    initialised,
    prepared,
    with_partitions,
)

GOLDEN = kafka_bytes("records/kafka-4.3.1-transactions.txt")
START_MS = 1_700_000_000_000
MAX = 0x7FFF
ALL_FIELDS = TransactionLogValue(
    9,
    3,
    60_000,
    TransactionStatus.ONGOING,
    (("t-ü", (0, 7)), ("__consumer_offsets", (200,))),
    START_MS + 1,
    START_MS,
    8,
    10,
    2,
)

Step = Callable[[TransactionLogValue, int], TransactionLogValue]


def offsets(*partitions: int) -> Partitions:
    return (("__consumer_offsets", partitions),)


def add(version: int, *partitions: int) -> Step:
    return lambda value, now_ms: with_partitions(value, offsets(*partitions), version, now_ms)


def end(event: TransactionEvent, version: int, next_producer_id: int = -1) -> Step:
    return lambda value, now_ms: prepared(value, event, version, next_producer_id, now_ms)


def init(epoch: int) -> Step:
    return lambda value, now_ms: initialised(value, value.producer_id, epoch, 60_000, now_ms)


def rotate(producer_id: int) -> Step:
    return lambda value, now_ms: initialised(value, producer_id, 0, 30_000, now_ms)


def at(producer_id: int, epoch: int, status: TransactionStatus) -> Step:
    return lambda _, now_ms: initialised(
        TransactionLogValue(producer_id, epoch - 1, 60_000, status, (), 0, -1), producer_id, epoch, 60_000, now_ms
    )


SCENARIOS: dict[str, dict[str, Step]] = {
    "v0": {
        "init": lambda _, now_ms: created(5, 60_000, now_ms),
        "add": add(0, 3),
        "add-another": add(0, 1, 3),
        "commit": end(TransactionEvent.COMMIT, 0),
        "committed": completed,
        "add-again": add(0, 2),
        "abort": end(TransactionEvent.ABORT, 0),
        "aborted": completed,
        "init-again": init(1),
        "continue": init(2),
    },
    "v2": {
        "init": lambda _, now_ms: created(6, 60_000, now_ms),
        "add": add(2, 3),
        "commit": end(TransactionEvent.COMMIT, 2),
        "committed": completed,
        "abort-nothing": end(TransactionEvent.ABORT_OF_NOTHING, 2),
        "aborted-nothing": completed,
        "init-again": init(3),
    },
    "exhausted": {
        "init": at(7, MAX - 1, TransactionStatus.COMPLETE_COMMIT),
        "add": add(2, 3),
        "commit": end(TransactionEvent.COMMIT, 2, 8),
        "committed": completed,
        "add-again": add(2, 4),
        "abort": end(TransactionEvent.ABORT, 2),
        "aborted": completed,
    },
    "rotated": {
        "init": at(7, MAX - 1, TransactionStatus.EMPTY),
        "rotate": rotate(8),
        "add": add(0, 4),
    },
}

UNORDERED = {"v0.add-another", "v0.commit"}
"""Kafka keeps partitions in a set, and writes 3 before 1. We write them in their order."""


def steps() -> Iterator[tuple[str, TransactionLogValue]]:
    for scenario, todo in SCENARIOS.items():
        value = ALL_FIELDS
        for number, (name, step) in enumerate(todo.items(), 1):
            value = step(value, START_MS + number * 1000)
            yield f"{scenario}.{name}", value


@pytest.mark.parametrize(("name", "value"), list(steps()))
def test_record_of_each_transition_is_written_as_kafka_writes_it(name: str, value: TransactionLogValue) -> None:
    golden = GOLDEN[name]
    if name in UNORDERED:
        golden = golden.replace(b"\x03\0\0\0\x03\0\0\0\x01", b"\x03\0\0\0\x01\0\0\0\x03")
        assert golden != GOLDEN[name]
    assert encode_transaction_value(value) == golden
    assert decode_transaction_value(golden) == value


def test_every_record_of_kafka_is_compared() -> None:
    assert {name for name in GOLDEN if "." in name} == {name for name, _ in steps()}


def test_values_of_both_versions_decode() -> None:
    old = replace(ALL_FIELDS, previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert decode_transaction_value(GOLDEN["value-0"]) == old
    assert decode_transaction_value(GOLDEN["value-1"]) == ALL_FIELDS
    assert encode_transaction_value(ALL_FIELDS) == GOLDEN["value-1"]
    assert decode_transaction_value(GOLDEN["value-1-with-next-epoch"]) == ALL_FIELDS
    empty = TransactionLogValue(9, 0, 0, TransactionStatus.EMPTY, (), 0, 0)
    assert decode_transaction_value(GOLDEN["value-0-empty"]) == empty


def test_key_is_written_as_kafka_writes_it() -> None:
    assert encode_transaction_key("tx-ä") == GOLDEN["key"]
    assert decode_transaction_record(GOLDEN["key"], None) == TransactionRecord("tx-ä", None)


def test_block_of_producer_ids_is_a_record_that_kafka_reads() -> None:
    taken = ProducerIds(0).take(START_MS)
    assert taken is not None
    producer_id, [(key, value, change)] = taken
    assert producer_id == 1 << RANGE_BITS
    assert (key, value) == (GOLDEN["key-of-producer-ids"], GOLDEN["producer-ids"])
    assert decode_transaction_record(key, value) == change


def test_key_of_another_version_is_an_unknown_record() -> None:
    assert decode_transaction_record(b"\0\1" + GOLDEN["key"][2:], b"anything") == UnknownRecord(1, "")


@pytest.mark.parametrize("name", ["value-0", "value-1", "value-1-with-next-epoch", "v2.add", "exhausted.commit"])
def test_value_that_is_cut_anywhere_is_refused(name: str) -> None:
    for size in range(len(GOLDEN[name])):
        with pytest.raises(RecordDecodeError):
            decode_transaction_value(GOLDEN[name][:size])


@pytest.mark.parametrize("key", [None, b"", b"\0", GOLDEN["key"][:-1]])
def test_key_that_does_not_parse_is_refused(key: bytes | None) -> None:
    with pytest.raises(RecordDecodeError):
        decode_transaction_record(key, GOLDEN["value-0"])


def test_value_of_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedValueVersionError):
        decode_transaction_value(b"\0\2" + GOLDEN["value-1"][2:])


@pytest.mark.parametrize("status", [6, 7, 8, 255])
def test_status_that_no_broker_writes_is_refused(status: int) -> None:
    value = bytearray(GOLDEN["value-1"])
    value[16] = status
    with pytest.raises(RecordDecodeError, match="status"):
        decode_transaction_value(bytes(value))


def test_tagged_field_of_a_wrong_size_is_refused() -> None:
    value = GOLDEN["v2.add"]
    assert value.endswith(b"\x06\x02\x02\x00\x02")
    with pytest.raises(RecordDecodeError, match="tagged field 2"):
        decode_transaction_value(value[:-4] + b"\x02\x01\x02")


def test_topic_that_fits_no_string_is_not_written() -> None:
    with pytest.raises(ValueError, match="topic of"):
        encode_transaction_value(replace(ALL_FIELDS, partitions=(("t" * 40_000, (0,)),)))


def test_unknown_tagged_fields_are_skipped() -> None:
    """testDeserializeFutureTransactionLogValue: of the value, and of a topic in it."""
    value = GOLDEN["v2.add"]
    assert value[-15:].startswith(b"\x02\x00\x08")  # two tagged fields, the first of 8 bytes
    future = value[:-15] + b"\x04" + value[-14:] + b"\x64\x03foo" + b"\x65\x04\0\0\x0f\xa0"
    topic_end = future.index(b"\0\0\0\x03\0") + 4
    future = future[:topic_end] + b"\x01\x64\x03bar" + future[topic_end + 1 :]
    assert len(future) == len(value) + 16
    assert decode_transaction_value(future) == decode_transaction_value(value)
