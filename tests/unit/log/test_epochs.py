"""Leader epoch cache. Cases follow LeaderEpochFileCacheTest of Apache Kafka."""

from __future__ import annotations

import pytest

from muster_coordinator.records.epoch_cache import EpochCache


def test_same_epoch_is_noted_once() -> None:
    cache = EpochCache()
    assert cache.assign(2, 5)
    assert not cache.assign(2, 9)
    assert cache.entries == ((2, 5),)


def test_epoch_without_records_gives_way_to_the_next() -> None:
    assert EpochCache([(1, 0), (2, 5), (3, 5)]).entries == ((1, 0), (3, 5))


@pytest.mark.parametrize("entry", [(1, 9), (3, 4)], ids=["lower epoch", "lower offset"])
def test_entry_that_goes_back_is_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="after epoch 2"):
        EpochCache([(2, 5)]).assign(*entry)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (-1, -1)), (1, (1, 5)), (2, (1, 5)), (3, (3, 9)), (4, (4, 20)), (7, (4, 20))],
)
def test_end_of_epoch_is_where_the_next_begins(epoch: int, expected: tuple[int, int]) -> None:
    assert EpochCache([(1, 0), (3, 5), (4, 9)]).end_of(epoch, log_end=20) == expected


@pytest.mark.parametrize(("offset", "epoch"), [(0, -1), (2, 1), (4, 1), (5, 3), (100, 3)])
def test_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert EpochCache([(1, 2), (3, 5)]).epoch_at(offset) == epoch


def test_truncation_drops_epochs_that_begin_at_or_behind_it() -> None:
    cache = EpochCache([(1, 0), (3, 5), (4, 9)])
    assert cache.truncate_to(9)
    assert not cache.truncate_to(9)
    assert cache.entries == ((1, 0), (3, 5))
    assert cache.last_epoch == 3


def test_file_reads_back_and_is_kafkas() -> None:
    cache = EpochCache([(1, 0), (3, 5)])
    assert cache.encode() == b"0\n2\n1 0\n3 5\n"
    assert EpochCache.decode(cache.encode()).entries == cache.entries
    assert EpochCache.decode(b"0\n0\n").entries == ()


@pytest.mark.parametrize("text", [b"", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1 0 7\n", b"0\nx\n", b"\xff\xfe"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        EpochCache.decode(text)
