"""Committed offsets of groups that nobody changes are packed, and nothing but memory shows it."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.groups.offsets import PACKED_OFFSETS_MAX, OffsetStore, Unpacked
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitValue

TOPIC_ID = b"the id of topics"


def value(offset: int, *, topic_id: bytes = TOPIC_ID, metadata: str = "", expire_ms: int = -1) -> OffsetCommitValue:
    return OffsetCommitValue(offset, -1 if expire_ms != -1 else 7, metadata, 1_700_000_000_000, expire_ms, topic_id)


def unpacked(store: OffsetStore) -> set[str]:
    return {group_id for group_id, held in store.committed.items() if isinstance(held, Unpacked)}


def filled(groups: int, unpacked_min: int) -> OffsetStore:
    store = OffsetStore(producers_max=10, unpacked_min=unpacked_min)
    for number in range(groups):
        store.put(f"g-{number}", "t", 0, (number, value(number)))
    return store


def test_what_has_not_changed_for_longest_is_packed_and_found() -> None:
    store = filled(20, unpacked_min=5)
    assert unpacked(store) == {f"g-{number}" for number in range(15, 20)}
    assert list(store.committed) == [f"g-{number}" for number in range(20)]
    assert [store.get(f"g-{number}", "t", 0) for number in range(20)] == [(n, value(n)) for n in range(20)]
    assert unpacked(store) == {f"g-{number}" for number in range(15, 20)}, "a question unpacks nothing"
    assert store.count == 20


def test_group_that_changes_all_the_time_stays_unpacked() -> None:
    store = filled(1, unpacked_min=5)
    for number in range(100):
        store.put("g-0", "t", 0, (number, value(number)))
        store.put(f"other-{number}", "t", 0, (number, value(number)))
        assert "g-0" in unpacked(store)
        assert len(unpacked(store)) <= 6


def test_more_groups_stay_unpacked_while_they_change() -> None:
    store = filled(50, unpacked_min=100)
    store.unpacked_min = 5
    for number in range(50):
        for busy in range(50):
            store.put(f"g-{busy}", "t", 0, (number, value(number)))
        store.put(f"other-{number}", "t", 0, (number, value(number)))
    assert {f"g-{busy}" for busy in range(50)} <= unpacked(store)


def test_packed_offsets_are_those_that_were_put() -> None:
    store = filled(0, unpacked_min=1)
    stored = {
        ("t", 0): (1, value(10)),
        ("t", 1): (2, value(11, metadata="\u00fc" * 100)),
        ("t", 7): (3, value(2**62, topic_id=NO_TOPIC_ID)),
        ("another", 2**31 - 1): (4, value(0, expire_ms=5)),
    }
    for (topic, partition), each in stored.items():
        store.put("g", topic, partition, each)
    store.put("other", "t", 0, (5, value(1)))
    assert unpacked(store) == {"other"}
    found = store.of_group("g")
    assert {(topic, index): each for topic, of_topic in found.items() for index, each in of_topic.items()} == stored
    store.put("g", "t", 1, (6, value(12)))
    assert store.get("g", "t", 1) == (6, value(12))
    assert store.get("g", "t", 0) == stored["t", 0]
    assert store.count == 5


def test_removal_of_packed_offsets() -> None:
    store = filled(3, unpacked_min=1)
    store.put("g-0", "t", 1, (9, value(9)))
    store.put("g-1", "t", 0, (10, value(10)))
    store.remove("g-0", "t", 0)
    assert store.of_group("g-0") == {"t": {1: (9, value(9))}}
    store.remove("g-0", "t", 5)
    store.remove("g-0", "t", 1)
    assert "g-0" not in store.committed
    store.put("g-0", "t", 0, (11, value(11)))  # a group of that name again, while the clock still has the old one
    store.put("g-2", "t", 0, (12, value(12)))
    store.put("g-1", "t", 0, (13, value(13)))
    assert store.get("g-0", "t", 0) == (11, value(11))
    assert store.count == 3


@pytest.mark.parametrize(("offsets", "packed"), [(PACKED_OFFSETS_MAX, True), (PACKED_OFFSETS_MAX + 1, False)])
def test_large_group_stays_unpacked(offsets: int, packed: bool) -> None:
    store = filled(0, unpacked_min=1)
    for partition in range(offsets):
        store.put("large", "t", partition, (partition, value(partition)))
    for number in range(3):
        store.put(f"g-{number}", "t", 0, (number, value(number)))
    assert ("large" not in unpacked(store)) is packed
    assert len(store.of_group("large")["t"]) == offsets


def test_transaction_commits_into_a_packed_group() -> None:
    store = filled(3, unpacked_min=1)
    store.put_pending(1, 0, "g-0", "t", 0, (20, value(20)))
    store.put_pending(1, 0, "g-0", "t", 1, (21, value(21)))
    store.put_pending(1, 0, "g-1", "t", 0, (0, value(99)))  # a plain commit overtook it
    store.end_transaction(1, 0, True, 0, 22)
    assert store.of_group("g-0") == {"t": {0: (20, value(20)), 1: (21, value(21))}}
    assert store.get("g-1", "t", 0) == (1, value(1))


def test_answers_are_the_same_while_groups_are_packed_between_them() -> None:
    h = Harness()
    for offset in range(3):
        for group in range(4):
            h.commit(f"g-{group}", offset=offset + group)
    assert len(unpacked(h.coordinator._state.offsets)) == 1
    assert [h.offset(f"g-{group}") for group in range(4)] == [2, 3, 4, 5]
    assert h.restored().durable_state() == h.coordinator.durable_state()
