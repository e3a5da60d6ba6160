"""A commit of packed partitions does what the same commit does that comes one by one: answers, bytes of the log, state.

The harness has a follower that replays the records of a run one by one.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from tests.unit.groups.harness import Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.records.offset_run import OffsetRun
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.packed_offsets import PackedOffsets

Entries = list[tuple[int, int, int]]


def packed(entries: Entries, metadata: str | None = "") -> PackedOffsets:
    partitions, offsets, epochs = zip(*entries, strict=True)
    data = b"".join(struct.pack(">iqih", *entry, 0) for entry in entries)
    return PackedOffsets(data, partitions, offsets, epochs, metadata)


def entries_of(count: int, offset: int = 100) -> Entries:
    return [(number, offset + number, number - 1) for number in range(count)]


class Twins:
    """One harness gets packed partitions, the other one the same partitions one by one."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.quick, self.plain = (Harness(config or GroupConfig()) for _ in range(2))

    def both(self, *topics: tuple[str, PackedOffsets | tuple[Any, ...]], **fields: Any) -> m.OffsetCommitResponse:
        asked = {"generation_id": -1, "member_id": "", "retention_time_ms": -1} | fields
        quick, plain = (
            h.send(
                m.OffsetCommitRequest(group_id="g", group_instance_id=None, topics=each, api_version=9, **asked)
            ).response
            for h, each in (
                (self.quick, topics),
                (self.plain, tuple((topic, tuple(partitions)) for topic, partitions in topics)),
            )
        )
        assert quick == plain
        assert [(e.key, e.value, e.offset) for e in self.quick.log] == [  # type: ignore[union-attr]
            (e.key, e.value, e.offset)
            for e in self.plain.log  # type: ignore[union-attr]
        ]
        assert self.quick.coordinator.durable_state() == self.plain.coordinator.durable_state()
        assert self.quick.coordinator.event_counts == self.plain.coordinator.event_counts
        assert self.quick.coordinator.offset_count == self.plain.coordinator.offset_count
        return quick

    @property
    def runs(self) -> int:
        """How many runs the last commit gave."""
        return sum(isinstance(record, OffsetRun) for record in self.quick.last.records)


def test_packed_partitions_are_committed_in_a_new_group_and_again() -> None:
    twins = Twins()
    assert twins.both(("t", packed(entries_of(50)))).topics == (("t", tuple((n, 0) for n in range(50))),)
    twins.both(("t", packed(entries_of(60, offset=7), None)), ("u", packed(entries_of(6))))
    assert (twins.runs, twins.quick.coordinator.offset_count) == (2, 66)
    assert twins.quick.restored().durable_state() == twins.plain.coordinator.durable_state()


def test_last_offset_of_a_partition_that_is_named_twice_stays() -> None:
    twins = Twins()
    twins.both(("t", packed([*entries_of(6), (3, 999, 2)])))
    assert twins.quick.offset(partition=3) == 999


def test_packed_partitions_go_with_others_in_their_order() -> None:
    twins = Twins()
    plain = ((0, 5, -1, "metadata"), (1, 6, -1, None))
    twins.both(("a", plain), ("b", packed(entries_of(9))), ("c", plain), ("b", packed(entries_of(9, offset=3))))
    assert twins.runs == 2


@pytest.mark.parametrize("missing", [[0], [9], [9, 8], list(range(10))])
def test_packed_partitions_of_which_some_do_not_exist(missing: list[int]) -> None:
    twins = Twins()
    for h in (twins.quick, twins.plain):
        h.topics.missing = {("t", partition) for partition in missing}
    answer = twins.both(("u", packed(entries_of(6))), ("t", packed(entries_of(10))))
    codes = {(topic, partition): code for topic, each in answer.topics for partition, code in each}
    assert {key[1] for key, code in codes.items() if code} == set(missing)
    assert twins.runs == 1


def test_packed_partitions_are_refused_with_the_error_of_the_group() -> None:
    twins = Twins()
    answer = twins.both(("t", packed(entries_of(8))), generation_id=4, member_id="nobody")
    assert answer.topics == (("t", tuple((n, ErrorCode.GROUP_ID_NOT_FOUND) for n in range(8))),)
    assert twins.quick.log == []


@pytest.mark.parametrize(("topic", "bytes_max"), [("t", 4_000), ("t" * 1_000, 150_000)], ids=["small", "large"])
def test_packed_partitions_that_no_batch_can_hold_are_refused(topic: str, bytes_max: int) -> None:
    twins = Twins(GroupConfig(max_record_bytes=bytes_max))
    answer = twins.both((topic, packed(entries_of(200))))
    assert {code for _, each in answer.topics for _, code in each} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert twins.quick.log == []


def test_packed_partitions_with_a_retention_time_keep_it() -> None:
    twins = Twins()
    twins.both(("t", packed(entries_of(6))), retention_time_ms=1000)
    assert twins.runs == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_commits_are_equal_packed_or_not(seed: int) -> None:
    source, twins = random.Random(seed), Twins()
    for _ in range(15):
        topics = []
        for _ in range(source.randint(1, 3)):
            some = source.sample(range(40), source.randint(1, 30))
            entries = [(each, source.randrange(-(2**63), 2**63), source.randrange(-1, 99)) for each in some]
            topics.append((source.choice("tuv"), packed(entries, source.choice(["", None]))))
        twins.both(*topics)
