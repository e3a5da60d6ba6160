"""Committed offsets that are packed and unpacked at any time are those of plain tables."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.groups.offset_store import OffsetStore, Stored, Unpacked
from muster_coordinator.groups.packed import encode_offsets
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitValue

Place = tuple[str, str, int]
TOPIC_IDS = [NO_TOPIC_ID, b"the id of topics", b"id of a new one."]


class Tables:
    """What OffsetStore stands for."""

    def __init__(self) -> None:
        self.committed: dict[Place, Stored] = {}
        self.pending: dict[int, dict[Place, Stored]] = {}

    def remove(self, place: Place) -> None:
        self.committed.pop(place, None)
        for of_producer in self.pending.values():
            of_producer.pop(place, None)

    def end(self, producer_id: int, committed: bool) -> None:
        for place, stored in self.pending.pop(producer_id, {}).items():
            if committed and (place not in self.committed or stored[0] > self.committed[place][0]):
                self.committed[place] = stored


def offsets_of(store: OffsetStore) -> dict[Place, Stored]:
    return {
        (group, topic, partition): stored
        for group in store.committed
        for topic, of_topic in store.of_group(group).items()
        for partition, stored in of_topic.items()
    }


@given(seed=st.integers(0, 2**32), unpacked_min=st.sampled_from([1, 2, 4]), groups=st.integers(1, 8))
def test_packed_offsets_are_those_of_plain_tables(seed: int, unpacked_min: int, groups: int) -> None:
    chance, store, tables = random.Random(seed), OffsetStore(3, unpacked_min), Tables()

    def any_place() -> Place:
        return f"g-{chance.randrange(groups)}", chance.choice("tu"), chance.randrange(3)

    def any_value() -> OffsetCommitValue:
        metadata = chance.choice(["", "x", "\u00fc\0\U0001f600"])
        expire_ms = chance.choice([-1, -1, 2**62])
        return OffsetCommitValue(chance.choice([0, 2**63 - 1]), -1, metadata, 5, expire_ms, chance.choice(TOPIC_IDS))

    for at in range(chance.randint(1, 150)):
        place, producer_id, action = any_place(), chance.randrange(3), chance.randrange(10)
        stored = (at, any_value())
        if action < 3:
            store.put(*place, stored)
            tables.committed[place] = stored
        elif action < 5:
            each = [(chance.randrange(4), stored) for _ in range(chance.randint(1, 5))]
            store.put_all(*place[:2], iter(each), at)
            tables.committed |= {(*place[:2], partition): of for partition, of in each}
        elif action < 7:
            store.remove(*place, at)
            tables.remove(place)
        elif action < 9:
            store.put_pending(producer_id, 0, *place, stored)
            tables.pending.setdefault(producer_id, {})[place] = stored
        else:
            committed = chance.choice([True, False])
            store.end_transaction(producer_id, 0, committed, 0, at)
            tables.end(producer_id, committed)
        assert offsets_of(store) == tables.committed
        assert store.count == len(tables.committed)
    assert {group for group, _, _ in tables.committed} == set(store.committed), "no group without offsets"
    live = [held for held in store.unpacked if store.committed.get(held.group_id) is held]
    assert len(live) == sum(isinstance(held, Unpacked) for held in store.committed.values()), "each once in the clock"
    pending = {group for of_producer in tables.pending.values() for group, _, _ in of_producer}
    assert set(store.open_transactions) == pending
    restored = OffsetStore(3, unpacked_min)
    for group in store.committed:
        packed = store.packed(group)
        for topic, topic_id, offsets in packed:
            for offset in offsets:
                part = [(topic, topic_id, [offset])]
                restored.restore(group, 1, encode_offsets(part))
    assert offsets_of(restored) == tables.committed
    assert restored.count == len(tables.committed)
