"""OffsetFetch. Origin: testFetchOffsets*, testFetchAllOffsets* of OffsetMetadataManagerTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.packed_offsets import FoundOffsets


@pytest.fixture
def h() -> Harness:
    return Harness()


def fetch(h: Harness, topics: tuple[tuple[str, tuple[int, ...]], ...] | None) -> object:
    return h.send(m.OffsetFetchRequest("g", "ignored", 99, topics, False)).response


def test_unknown_group_has_no_offsets_and_no_error(h: Harness) -> None:
    """[testFetchOffsetsWithUnknownGroup, testFetchAllOffsetsWithUnknownGroup]"""
    assert fetch(h, (("t", (0, 1)),)) == m.OffsetFetchResponse(
        "g", 0, (("t", ((0, -1, -1, "", 0), (1, -1, -1, "", 0))),)
    )
    assert fetch(h, None) == m.OffsetFetchResponse("g", 0, ())
    assert h.group_ids() == []


def test_committed_and_missing_partitions_in_the_order_of_the_request(h: Harness) -> None:
    """[testFetchOffsets, testFetchOffsetForUnknownPartition]. Member id and epoch are not looked at, topics not
    validated."""
    h.commit(topics=(("t", ((1, 7, 3, "meta"),)),))
    h.topics.missing.add(("t", 1))
    assert fetch(h, (("u", (0,)), ("t", (2, 1)))) == m.OffsetFetchResponse(
        "g", 0, (("u", ((0, -1, -1, "", 0),)), ("t", ((2, -1, -1, "", 0), (1, 7, 3, "meta", 0))))
    )


def test_all_offsets(h: Harness) -> None:
    """[testFetchAllOffsets]"""
    h.commit(topics=(("t", ((0, 1, -1, ""), (1, 2, -1, ""))), ("u", ((0, 3, -1, ""),))))
    assert h.fetch(topics=None) == {("t", 0): (1, 0), ("t", 1): (2, 0), ("u", 0): (3, 0)}


@pytest.mark.parametrize("count", [5, 6, 500, 501])
@pytest.mark.parametrize("asks_for_all", [True, False])
def test_offsets_of_many_partitions_are_kept_in_columns(h: Harness, count: int, asks_for_all: bool) -> None:
    h.commit(topics=(("t", tuple((index, 10 * index, index - 1, "") for index in range(count))),))
    response = fetch(h, None if asks_for_all else (("t", tuple(range(count))),))
    expected = tuple((index, 10 * index, index - 1, "", 0) for index in range(count))
    assert response == m.OffsetFetchResponse("g", 0, (("t", expected),))
    assert isinstance(response, m.OffsetFetchResponse)
    assert isinstance(response.topics[0][1], FoundOffsets) is (6 <= count <= 500)


@pytest.mark.parametrize("other", [(6, -1, -1, "", 0), (6, 8, 2, "metadata", 0)])
def test_one_partition_that_is_missing_or_has_metadata_keeps_all_out_of_columns(
    h: Harness, other: tuple[int, int, int, str, int]
) -> None:
    h.commit(topics=(("t", tuple((index, index, 1, "") for index in range(6))),))
    if other[3]:
        h.commit(topics=(("t", (other[:4],)),))
    response = fetch(h, (("t", (0, 1, 2, 3, 4, 5, 6)),))
    assert response == m.OffsetFetchResponse(
        "g", 0, (("t", (*((index, index, 1, "", 0) for index in range(6)), other)),)
    )


def test_no_topics_is_not_all_topics(h: Harness) -> None:
    h.commit()
    assert fetch(h, ()) == m.OffsetFetchResponse("g", 0, ())


def test_open_transaction_is_unstable_where_stable_is_required(h: Harness) -> None:
    """[testFetchOffsetsWithPendingTransactionalOffsets]"""
    h.commit(topics=(("t", ((0, 1, -1, ""), (1, 1, -1, ""))),))
    h.txn_commit(9, topics=(("t", ((1, 50, -1, ""), (2, 50, -1, ""))),))
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    wanted = (("t", (0, 1, 2, 3)),)
    assert h.fetch(topics=wanted, require_stable=True) == {
        ("t", 0): (1, 0),
        ("t", 1): (-1, unstable),
        ("t", 2): (-1, unstable),
        ("t", 3): (-1, 0),
    }
    assert h.fetch(topics=wanted)["t", 1] == (1, 0)
    assert h.fetch(topics=wanted)["t", 2] == (-1, 0)


def test_all_stable_topics_leave_out_partitions_that_are_only_pending(h: Harness) -> None:
    """Reference, section 11"""
    h.commit()
    h.txn_commit(9, topics=(("t", ((0, 50, -1, ""), (2, 50, -1, ""))),))
    assert h.fetch(topics=None, require_stable=True) == {("t", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}


def test_pending_transaction_of_another_group_is_stable_here(h: Harness) -> None:
    h.commit()
    h.txn_commit(9, "other")
    assert h.fetch(require_stable=True) == {("t", 0): (5, 0)}
