"""OffsetFetch. Origin: testFetchOffsets*, testFetchAllOffsets* of OffsetMetadataManagerTest."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m


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
