"""What compaction keeps says the same as what it read, whatever follows, and however far it came."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.offsets_history import HISTORIES, RETENTION_MS, History, Step, assert_same, state_of

from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.records.batch import RecordBatch, encode_batch, read_batch

Batches = list[RecordBatch]


def write(steps: list[Step]) -> tuple[Batches, int]:
    history = History()
    batches = [read_batch(data) for step in steps if (data := history.batch(step)) is not None]
    return batches, history.now_ms


def compact(batches: Batches, now_ms: int) -> tuple[list[Batches], int]:
    """(for each batch what is left of it, the horizon)."""
    compaction = Compaction(now_ms, RETENTION_MS)
    for batch in batches:
        compaction.note(batch)
    kept = [compaction.keep(batch) for batch in batches]
    return [[read_batch(data)] if data else [] for data in kept], compaction.horizon


def flat(parts: list[Batches]) -> Batches:
    return [batch for part in parts for batch in part]


@settings(max_examples=250)
@given(HISTORIES)
def test_compacted_prefix_and_its_rest_say_what_the_whole_log_says(steps: list[Step]) -> None:
    batches, now_ms = write(steps)
    whole = state_of(batches)
    for count in range(1, len(batches) + 1):
        parts, _ = compact(batches[:count], now_ms)
        assert_same(state_of(flat(parts)), state_of(batches[:count]))
        assert_same(state_of(flat(parts) + batches[count:]), whole)


@settings(max_examples=250)
@given(HISTORIES, st.integers(0, 25))
def test_replacing_batches_one_after_the_other_says_the_same_at_every_moment(steps: list[Step], count: int) -> None:
    batches, now_ms = write(steps)
    whole = state_of(batches)
    parts, _ = compact(batches[:count], now_ms)
    for done in range(len(parts) + 1):
        assert_same(state_of(flat(parts[:done]) + batches[done:]), whole)


@settings(max_examples=250)
@given(HISTORIES, st.integers(0, 25), st.integers(0, 25))
def test_compacting_again_says_the_same(steps: list[Step], first: int, more: int) -> None:
    batches, now_ms = write(steps)
    once = flat(compact(batches[:first], now_ms - RETENTION_MS // 2)[0]) + batches[first : first + more]
    twice = flat(compact(once, now_ms)[0])
    assert_same(state_of(twice + batches[first + more :]), state_of(batches))


@settings(max_examples=250)
@given(HISTORIES, st.integers(0, 25))
def test_who_has_the_log_up_to_the_horizon_may_go_on_from_the_compacted_one(steps: list[Step], count: int) -> None:
    """A follower that ends at or behind the horizon gets the rest from a cleaned log."""
    batches, now_ms = write(steps)
    parts, horizon = compact(batches[:count], now_ms)
    rest = flat(parts) + batches[count:]
    whole = state_of(batches)
    for have in range(len(batches) + 1):
        end = batches[have - 1].end_offset if have else 0
        if end >= horizon:
            assert_same(state_of(batches[:have] + [b for b in rest if b.base_offset >= end]), whole)


@settings(max_examples=200)
@given(HISTORIES)
def test_batches_keep_their_offsets_epochs_and_producers(steps: list[Step]) -> None:
    batches, now_ms = write(steps)
    for batch, part in zip(batches, compact(batches, now_ms)[0], strict=True):
        for left in part:
            assert (left.base_offset, left.end_offset, left.leader_epoch) == (
                batch.base_offset,
                batch.end_offset,
                batch.leader_epoch,
            )
            assert (left.producer_id, left.producer_epoch, left.attributes) == (
                batch.producer_id,
                batch.producer_epoch,
                batch.attributes,
            )
            assert {r.offset for r in left.records()} <= {r.offset for r in batch.records()}


A = ("g1", 0, 5, False)
OLD_A = ("g1", 0, 6, True)


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([("put", [A]), ("put", [A])], [1]),
        ([("put", [A]), ("put", [OLD_A])], [1]),
        ([("put", [A]), ("remove", [A])], [1]),
        ([("put", [A]), ("remove", [A]), ("wait", RETENTION_MS)], []),
        ([("pending", [A], 1), ("put", [A])], [0, 1]),
        ([("pending", [A], 1), ("marker", 1, True)], [0, 1]),
        ([("pending", [A], 1), ("marker", 1, True), ("wait", 9 * RETENTION_MS)], [0, 1]),
        ([("pending", [A], 1), ("marker", 1, False)], [1]),
        ([("pending", [A], 1), ("marker", 1, False), ("wait", RETENTION_MS)], []),
        ([("put", [A]), ("pending", [A], 1), ("marker", 1, True)], [1, 2]),
        ([("put", [A]), ("pending", [A], 1), ("marker", 1, False)], [0, 2]),
        ([("pending", [A], 1), ("remove", [A]), ("wait", RETENTION_MS)], []),
        ([("leader change",), ("leader change",), ("wait", 9 * RETENTION_MS)], [0, 1]),
        ([("group", "g1", 1), ("group", "g1", 2)], [1]),
        ([("put", [A]), ("remove group", "g1"), ("wait", RETENTION_MS)], [0, 1]),
        ([("put", [A]), ("remove group", "g1"), ("remove", [A]), ("wait", RETENTION_MS)], []),
    ],
)
def test_records_that_count_are_kept_and_others_go(steps: list[Step], kept: list[int]) -> None:
    batches, now_ms = write(steps)
    left = flat(compact(batches, now_ms)[0])
    assert [record.offset for batch in left for record in batch.records()] == kept


@pytest.mark.parametrize("record_type", [*range(9, 16), *range(17, 25), 99])
def test_records_of_other_kinds_of_groups_are_kept_the_newest_of_each_key(record_type: int) -> None:
    """Share groups, Streams groups, and what a later release may have: nobody here reads them."""
    key, other = (record_type.to_bytes(2, "big") + name for name in (b"\0\x01g", b"\0\x01h"))
    records = [(key, b"old"), (other, b"kept"), (key, b"new"), (other + b"-", None)]
    batches = [
        read_batch(encode_batch([record], base_offset=offset, leader_epoch=1, timestamp_ms=0))
        for offset, record in enumerate(records)
    ]
    left = flat(compact(batches, 0)[0])
    assert [(r.key, r.value) for batch in left for r in batch.records()] == records[1:]
    after = flat(compact(batches, 2 * RETENTION_MS)[0])
    assert [(r.key, r.value) for batch in after for r in batch.records()] == records[1:3]
