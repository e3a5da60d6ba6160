"""What a restore appends: no producer of the lost cluster goes on, no offset waits for a marker that never comes."""

from __future__ import annotations

from muster_cli.backup.copying import Batches
from muster_cli.backup.fencing import SKIPPED_IDS, OpenOffsets, Transactions, marked_later
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, encode_batch, read_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)
from muster_coordinator.transactions.producer_ids import BLOCK_SIZE, RANGE_BITS

NOW_MS = 5_000
FIRST_ID = 3 << RANGE_BITS


def value(status: TransactionStatus, epoch: int = 4, producer_id: int = FIRST_ID + 7) -> TransactionLogValue:
    partitions = () if status is TransactionStatus.EMPTY else ((OFFSETS.name, (0, 2)),)
    return TransactionLogValue(producer_id, epoch, 60_000, status, partitions, 1_000, 900, client_version=2)


def batch(records: list[tuple[bytes, bytes | None]], offset: int = 0, **fields: object) -> RecordBatch:
    return read_batch(encode_batch(records, base_offset=offset, leader_epoch=1, timestamp_ms=1, **fields))  # type: ignore[arg-type]


def record(name: str, content: TransactionLogValue | None) -> tuple[bytes, bytes | None]:
    return encode_transaction_key(name), None if content is None else encode_transaction_value(content)


def fenced(**values: TransactionLogValue) -> tuple[list[str], dict[str, TransactionLogValue]]:
    transactions = Transactions(2)
    if values:
        transactions.take(batch([record(name, content) for name, content in values.items()]))
    found = {}
    for key, content in transactions.fenced(NOW_MS):
        change = decode_transaction_record(key, content)
        assert isinstance(change, TransactionRecord)
        assert change.value is not None
        found[change.transactional_id] = change.value
    return transactions.open, found


def test_open_transaction_is_decided_as_aborted_in_a_higher_epoch() -> None:
    ongoing = value(TransactionStatus.ONGOING)
    names, found = fenced(tx=ongoing)
    assert names == ["tx"]
    after = found["tx"]
    assert (after.status, after.producer_epoch) == (TransactionStatus.PREPARE_ABORT, ongoing.producer_epoch + 1)
    assert after.partitions == ongoing.partitions


def test_producers_at_rest_are_fenced_and_decisions_stay() -> None:
    at_rest = {
        status.name: value(status)
        for status in (TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
    }
    names, found = fenced(
        **at_rest,
        commits=value(TransactionStatus.PREPARE_COMMIT),
        aborts=value(TransactionStatus.PREPARE_ABORT),
        used_up=value(TransactionStatus.EMPTY, epoch=0x7FFE),
    )
    assert names == []
    assert found.keys() - {""} == at_rest.keys()
    for name in at_rest:
        assert (found[name].status, found[name].producer_epoch) == (TransactionStatus.EMPTY, 5)


def test_producer_ids_that_may_have_been_handed_out_after_the_cut_are_skipped() -> None:
    _, found = fenced(tx=value(TransactionStatus.EMPTY))
    assert found[""].producer_id == FIRST_ID + 8 + SKIPPED_IDS + BLOCK_SIZE
    _, found = fenced()
    assert found[""].producer_id == FIRST_ID + SKIPPED_IDS + BLOCK_SIZE


def test_tombstone_of_an_id_is_believed() -> None:
    transactions = Transactions(2)
    transactions.take(batch([record("tx", value(TransactionStatus.ONGOING))]))
    transactions.take(batch([record("tx", None)], offset=1))
    assert (transactions.open, transactions.values) == ([], {})


def test_offsets_without_a_marker_are_those_after_the_last_one() -> None:
    def offsets(producer_id: int, epoch: int) -> RecordBatch:
        return batch([(b"k", b"v")], producer_id=producer_id, producer_epoch=epoch, transactional=True)

    def marker(producer_id: int, epoch: int) -> RecordBatch:
        of = encode_end_txn_marker(EndTxnMarker(committed=True, coordinator_epoch=1))
        return batch([of], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)

    found = OpenOffsets()
    for each in (offsets(1, 0), marker(1, 1), offsets(2, 5), batch([(b"k", b"v")]), offsets(1, 1), marker(3, 0)):
        found.take(each)
    assert found.epochs == {2: 5, 1: 1}


def test_coordinator_writes_markers_of_open_and_decided_transactions_only() -> None:
    values = [value(status, producer_id=number) for number, status in enumerate(TransactionStatus)]
    assert marked_later(values) == {(number, index) for number in (1, 2, 3) for index in (0, 2)}


def test_pieces_of_a_segment_are_checked_wherever_they_are_cut() -> None:
    data = b"".join(
        encode_batch([(b"k", b"v" * 50)], base_offset=offset, leader_epoch=1, timestamp_ms=1)
        for offset in range(10, 40)
    )
    for size in (1, 61, 100, len(data)):
        batches = Batches(10)
        for start in range(0, len(data), size):
            batches.take(data[start : start + size])
        assert (batches.end_offset, batches.rest) == (40, b"")
    harmed = bytearray(data)
    harmed[len(data) // 2] ^= 1
    assert complaint(bytes(harmed), 10)
    assert complaint(data, 11).endswith("follows offset 11")


def complaint(data: bytes, base_offset: int) -> str:
    batches = Batches(base_offset)
    try:
        for start in range(0, len(data), 100):
            batches.take(data[start : start + 100])
    except CorruptBatchError as error:
        return str(error)
    return ""
