"""What an answer of a broker means to a mirror."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.mirror.harness import DAY_MS, HOUR_MS, TOPIC_ID, Upstream

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.following import (
    LOOK_AGAIN,
    LookAgain,
    Nothing,
    Problem,
    ReadAgain,
    TakeIn,
    Verdict,
    is_another_topic,
    judge,
)
from muster_coordinator.records.mirror_position import MirrorPosition
from muster_coordinator.records.structs import NO_TOPIC_ID


def upstream_of(commits: int = 4) -> Upstream:
    upstream = Upstream()
    for number in range(commits):
        upstream.commit(f"g-{number}", number)
    return upstream


def at(offset: int, upstream: Upstream, *, since_ms: int | None = None, complete: bool = False) -> MirrorPosition:
    epoch = upstream.epoch if offset else -1
    since = upstream.now_ms if since_ms is None else since_ms
    return MirrorPosition(TOPIC_ID, offset, epoch, upstream.epoch, since, complete)


def verdict(position: MirrorPosition, upstream: Upstream, size: int = 1 << 20, at_end_ms: int = -1) -> Verdict:
    return judge(position, upstream.epoch, upstream.fetch(position, size), upstream.now_ms, at_end_ms, DAY_MS)


def test_batches_are_taken_in_up_to_the_last_whole_one() -> None:
    upstream = upstream_of()
    two = sum(len(batch.data) for batch in upstream.batches[:2])
    found = verdict(at(0, upstream, since_ms=5), upstream, two + 10)
    assert isinstance(found, TakeIn)
    assert [batch.base_offset for batch in found.batches] == [0, 1]
    assert found.position == MirrorPosition(TOPIC_ID, 2, upstream.epoch, upstream.epoch, 5, complete=False)


def test_a_reader_that_is_at_the_end_is_complete_from_then_on() -> None:
    upstream = upstream_of()
    found = verdict(at(0, upstream, since_ms=5), upstream)
    assert isinstance(found, TakeIn)
    assert found.position == MirrorPosition(TOPIC_ID, 4, upstream.epoch, upstream.epoch, upstream.now_ms, complete=True)
    assert verdict(found.position, upstream) == Nothing(at_end=True)


def test_a_partition_without_records_is_complete_at_once() -> None:
    found = verdict(at(0, Upstream()), Upstream())
    assert isinstance(found, TakeIn)
    assert found.position.complete
    assert not found.batches


def test_an_answer_that_had_no_room_says_nothing() -> None:
    upstream = upstream_of()
    position = at(2, upstream)
    answer = replace(upstream.fetch(position), records=b"")
    assert judge(position, upstream.epoch, answer, upstream.now_ms, -1, DAY_MS) == Nothing(at_end=False)


def test_a_cut_of_what_was_read_is_seen_by_its_epoch() -> None:
    upstream = upstream_of()
    position = at(4, upstream, complete=True)
    upstream.cut(3)
    for number in range(5):
        upstream.commit("later", number)
    found = verdict(position, upstream)
    assert isinstance(found, ReadAgain)
    assert "at offset 3 in epoch 3" in found.reason


def test_a_cut_behind_what_was_read_means_nothing() -> None:
    upstream = upstream_of()
    position = at(3, upstream, complete=True)
    upstream.cut(3)
    upstream.commit("later", 1)
    assert isinstance(verdict(position, upstream), TakeIn)


def test_an_offset_that_is_not_there_any_more_is_read_again() -> None:
    upstream = upstream_of()
    upstream.start = 3
    assert isinstance(verdict(at(1, upstream), upstream), ReadAgain)


@pytest.mark.parametrize("away_ms", [0, HOUR_MS, DAY_MS - 1, DAY_MS, 30 * DAY_MS])
@pytest.mark.parametrize("inside", [False, True])
def test_a_gap_counts_after_an_absence_of_the_retention_of_tombstones(away_ms: int, inside: bool) -> None:
    upstream = upstream_of()
    position = at(0 if inside else 1, upstream, since_ms=upstream.now_ms - away_ms, complete=True)
    del upstream.batches[1]
    found = verdict(position, upstream)
    assert isinstance(found, ReadAgain if away_ms >= DAY_MS else TakeIn)


def test_a_gap_inside_of_a_batch_counts_as_well() -> None:
    upstream = Upstream()
    upstream.append(*((b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00" + bytes([n]), None) for n in (0, 1, 0)))
    upstream.commit("h", 1)
    position = at(0, upstream, since_ms=upstream.now_ms - DAY_MS)
    assert isinstance(verdict(position, upstream), TakeIn)
    upstream.compact(drop_tombstones=False)
    assert upstream.batches[0].records_count == 2
    assert isinstance(verdict(position, upstream), ReadAgain)


def test_who_was_seen_at_the_end_a_moment_ago_was_not_away() -> None:
    upstream = upstream_of()
    position = at(1, upstream, since_ms=upstream.now_ms - 30 * DAY_MS, complete=True)
    del upstream.batches[1]
    assert isinstance(verdict(position, upstream), ReadAgain)
    assert isinstance(verdict(position, upstream, at_end_ms=upstream.now_ms - 1), TakeIn)


def test_a_damaged_batch_is_not_taken_in() -> None:
    upstream = upstream_of()
    position = at(0, upstream)
    answer = upstream.fetch(position)
    damaged = bytearray(answer.records)
    damaged[100] ^= 1
    found = judge(position, upstream.epoch, replace(answer, records=bytes(damaged)), upstream.now_ms, -1, DAY_MS)
    assert isinstance(found, Problem)
    assert "damaged" in found.reason


def test_batches_that_do_not_follow_each_other_are_not_taken_in() -> None:
    upstream = upstream_of()
    position = at(0, upstream)
    answer = upstream.fetch(position)
    twice = replace(answer, records=answer.records * 2)
    assert isinstance(judge(position, upstream.epoch, twice, upstream.now_ms, -1, DAY_MS), Problem)


@pytest.mark.parametrize("code", sorted(LOOK_AGAIN))
def test_another_leader_is_looked_for(code: ErrorCode) -> None:
    upstream = upstream_of()
    position = at(0, upstream)
    answer = replace(upstream.fetch(position), error_code=int(code))
    assert judge(position, upstream.epoch, answer, upstream.now_ms, -1, DAY_MS) == LookAgain(code.name)


def test_a_missing_right_is_said() -> None:
    upstream = upstream_of()
    position = at(0, upstream)
    answer = replace(upstream.fetch(position), error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert judge(position, upstream.epoch, answer, upstream.now_ms, -1, DAY_MS) == Problem(
        "the user of the mirror lacks READ on the topic"
    )


def test_another_topic_is_one_with_another_id_than_was_read() -> None:
    assert is_another_topic(MirrorPosition(TOPIC_ID), b"another topic id")
    assert not is_another_topic(MirrorPosition(TOPIC_ID), TOPIC_ID)
    assert not is_another_topic(MirrorPosition(NO_TOPIC_ID), TOPIC_ID)
