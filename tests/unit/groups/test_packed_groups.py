"""Groups that nobody asks for are packed, and so are their offsets; nothing but memory shows it."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import count

import msgspec
import pytest
from tests.unit.groups.harness import Harness, Topics

from muster_coordinator.groups import offset_store as module
from muster_coordinator.groups.classic.tables import group_record
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.offset_store import (
    LONG_RECORDS,
    PACKED_OFFSETS_MAX,
    SMALL_GROUP_OFFSETS,
    OffsetStore,
    Unpacked,
)
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord, OffsetCommitValue

TOPIC_ID = b"the id of topics"


def value(offset: int, *, topic_id: bytes = TOPIC_ID, metadata: str = "", expire_ms: int = -1) -> OffsetCommitValue:
    return OffsetCommitValue(offset, -1 if expire_ms != -1 else 7, metadata, 1_700_000_000_000, expire_ms, topic_id)


def unpacked(store: OffsetStore) -> set[str]:
    return {group_id for group_id, held in store.committed.items() if isinstance(held, Unpacked)}


def filled(groups: int, unpacked_min: int) -> OffsetStore:
    store = OffsetStore(producers_max=10, unpacked_min=unpacked_min)
    for number in range(groups):
        put(store, f"g-{number}", number)
    return store


def put(store: OffsetStore, group_id: str, offset: int) -> None:
    """Commit an offset by a run, because `store.put` packs a new group at once."""
    store.put_all(group_id, "t", [(0, (offset, value(offset)))], offset)


def test_what_has_not_changed_for_longest_is_packed_and_found() -> None:
    store = filled(20, unpacked_min=5)
    assert unpacked(store) == {f"g-{number}" for number in range(15, 20)}
    assert list(store.committed) == [f"g-{number}" for number in range(20)]
    assert [store.get(f"g-{number}", "t", 0) for number in range(20)] == [(n, value(n)) for n in range(20)]
    assert unpacked(store) == {f"g-{number}" for number in range(15, 20)}, "a question unpacks nothing"
    assert store.count == 20


def test_new_group_is_packed_until_it_changes() -> None:
    store = filled(5, unpacked_min=5)
    for number in range(5, 10):
        store.put(f"g-{number}", "t", 0, (number, value(number)))
    assert unpacked(store) == {f"g-{number}" for number in range(5)}
    store.put("g-7", "t", 1, (10, value(10)))
    assert "g-7" in unpacked(store)
    assert store.of_group("g-7") == {"t": {0: (7, value(7)), 1: (10, value(10))}}
    assert store.count == 11


def test_group_that_changes_all_the_time_stays_unpacked() -> None:
    store = filled(1, unpacked_min=5)
    for number in range(100):
        store.put("g-0", "t", 0, (number, value(number)))
        put(store, f"other-{number}", number)
        assert "g-0" in unpacked(store)
        assert len(unpacked(store)) <= 6


def test_more_groups_stay_unpacked_while_they_change() -> None:
    store = filled(50, unpacked_min=100)
    store.unpacked_min = 5
    at = count(50)
    for number in range(50):
        for busy in range(50):
            put(store, f"g-{busy}", next(at))
        put(store, f"other-{number}", next(at))
    assert {f"g-{busy}" for busy in range(50)} <= unpacked(store)


def test_group_of_some_offsets_is_packed_when_it_has_not_changed_for_long() -> None:
    store = filled(0, unpacked_min=1)
    for partition in range(SMALL_GROUP_OFFSETS + 1):
        store.put("some", "t", partition, (partition, value(partition)))
    for number in range(20):
        put(store, f"g-{number}", 10 + number)
    assert "some" in unpacked(store)
    put(store, "late", LONG_RECORDS)
    assert "some" in unpacked(store)
    put(store, "later", LONG_RECORDS + 10)
    put(store, "latest", LONG_RECORDS + 11)
    assert "some" not in unpacked(store)


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
    put(store, "other", 5)
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
    store.remove("g-0", "t", 0, 14)
    assert store.of_group("g-0") == {"t": {1: (9, value(9))}}
    store.remove("g-0", "t", 5, 14)
    store.remove("g-0", "t", 1, 14)
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
        put(store, f"g-{number}", offsets + LONG_RECORDS + number)
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


def test_transaction_that_was_overtaken_unpacks_a_group_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time takes half a millisecond, and others wait."""
    store, other = filled(0, unpacked_min=1), filled(0, unpacked_min=1)
    for partition in range(100):
        store.put_pending(1, 0, "g", "t", partition, (0, value(partition)))
        other.put("g", "t", partition, (1, value(partition)))
    store.restore("g", 100, module.encode_offsets(other.packed("g")))
    assert "g" not in unpacked(store)
    decoded: list[bytes] = []
    decode = module.decode_offsets
    monkeypatch.setattr(module, "decode_offsets", lambda packed: (decoded.append(packed), decode(packed))[1])
    store.end_transaction(1, 0, True, 0, 3)
    assert len(decoded) == 1


def test_answers_are_the_same_while_groups_are_packed_between_them() -> None:
    h = Harness()
    for offset in range(3):
        for group in range(4):
            h.commit(f"g-{group}", offset=offset + group)
    assert len(unpacked(h.coordinator._state.offsets)) == 1
    assert [h.offset(f"g-{group}") for group in range(4)] == [2, 3, 4, 5]
    assert h.restored().durable_state() == h.coordinator.durable_state()


def test_memory_of_a_group_that_nobody_asks_for() -> None:
    """A follower's or a new leader's; Kafka's group of one offset takes 670 bytes."""
    groups = 5_000
    coordinator = GroupCoordinator(GroupConfig(unpacked_groups=50), Topics(), lambda: "")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(groups):
            change = OffsetCommitRecord(f"group-{number:06}", str(b"topic-a", "ascii"), 0, value(1_000 + number))
            coordinator.replay(change, number, 1_700_000_000_000 + number)
        gc.collect()
        each = tracemalloc.get_traced_memory()[0] / groups
    finally:
        tracemalloc.stop()
    assert each < 400


def packed_groups(h: Harness) -> set[str]:
    return {group_id for group_id, group in h.coordinator._state.groups.items() if isinstance(group, bytes)}


def stable_group(h: Harness, group_id: str) -> tuple[str, int]:
    """Returns its member and its generation."""
    joining = h.join_dynamic(group_id)
    h.advance(3_000)
    member_id, generation = joining.response.member_id, joining.response.generation_id
    h.sync(group_id, generation, member_id, {member_id: b"all"})
    return member_id, generation


def test_new_leader_unpacks_the_groups_that_it_is_asked_for() -> None:
    h = Harness()
    members = {group: stable_group(h, group) for group in ("a", "b")}
    h.commit("simple")
    h.reload()
    assert packed_groups(h) == {"a", "b", "simple"}
    assert {("session", group, member) for group, (member, _) in members.items()} <= set(h.timers)
    assert h.describe("a").group_state == "Stable"
    assert h.commit("simple", offset=6) == 0
    assert packed_groups(h) == {"a", "b", "simple"}, "neither is more than a question"
    assert h.heartbeat("a", members["a"][1], members["a"][0]) == 0
    assert h.commit("b", generation_id=members["b"][1], member_id=members["b"][0]) == 0
    assert packed_groups(h) == {"simple"}
    h.reload()
    assert packed_groups(h) == {"a", "b", "simple"}


def test_sessions_of_packed_groups_end() -> None:
    h = Harness()
    stable_group(h, "a")
    h.reload()
    h.advance(70_000)
    assert h.state("a") == "Empty"


def test_emptied_group_is_packed_by_the_search_for_expired_offsets() -> None:
    h = Harness()
    member_id, generation = stable_group(h, "a")
    h.commit("a", generation_id=generation, member_id=member_id)
    h.advance(1_000)
    h.leave("a", member_id)
    before = h.coordinator.durable_state()
    assert (h.state("a"), packed_groups(h)) == ("Empty", set())
    h.advance(600_000)
    assert (h.state("a"), packed_groups(h)) == ("Empty", {"a"})
    assert h.coordinator.durable_state() == before
    assert stable_group(h, "a")[1] == generation + 2
    h.advance(1)
    assert packed_groups(h) == set()


def test_group_that_somebody_joins_is_not_packed() -> None:
    h = Harness()
    h.join("a", session_timeout_ms=1_800_000)
    h.commit("b")
    assert h.join("b", session_timeout_ms=1_800_000).code == 79
    h.advance(600_000)
    assert packed_groups(h) == set()


def test_offsets_of_a_group_that_no_record_mentions_are_in_a_snapshot() -> None:
    h = Harness(check=False)
    h.commit("a")
    h._append(group_record("a", None), None)
    assert "a" not in packed_groups(h)
    h.commit("a", topics=(("t", ((1, 5, -1, "x" * 5_000),)),))
    assert h.state("a") == "Empty"
    assert h.restored().durable_state() == h.coordinator.durable_state()
    assert h.restored().offset_count == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_snapshot_in_parts_of_any_size(size: int) -> None:
    h = Harness()
    stable_group(h, "members")
    h.commit("large", topics=(("t", tuple((n, n, -1, "") for n in range(5))), ("u", ((0, 9, -1, "text"),))))
    h.commit("small")
    restored = h._new()
    for part in h.coordinator.snapshot(size):
        restored.check(part)
        restored.restore(part)
    assert restored.durable_state() == h.coordinator.durable_state()
    assert restored.offset_count == h.coordinator.offset_count == 7
    assert restored.group_counts() == h.coordinator.group_counts()


@pytest.mark.parametrize(
    "group",
    [
        ("g", msgspec.Raw(b"\x93\xc2\xa0\x01"), 0, None),
        ("g", msgspec.Raw(b"\xdc\x00\x04\xc2\xa0\x01\xc0"), 0, None),
        ("g", None, 1, []),
        ("g", None, 1, [["t", 5, []]]),
        ("g", None, 2, [["t", b"", [[0, 1, 2, -1, "", 3, -1]]]]),
    ],
)
def test_part_that_is_packed_in_another_way_is_no_snapshot(group: tuple[object, ...]) -> None:
    with pytest.raises(msgspec.MsgspecError):
        Harness().coordinator.check(msgspec.msgpack.encode([[group]]))
