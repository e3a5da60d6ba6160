"""Partitions of declared topics are encoded once for all answers."""

from __future__ import annotations

import pytest

from muster_coordinator.requests.cluster import MetadataResponse, MetadataTopic, SpreadPartitions
from muster_coordinator.wire.k03_metadata import API, encode_response

COUNTS = (0, 1, 3, 700, 2, 701)
NODES: tuple[tuple[int, ...], ...] = ((), (7,), (0, 1, 300))


def answer(*topics: MetadataTopic) -> MetadataResponse:
    return MetadataResponse((), "cluster", 1, topics)


@pytest.mark.parametrize("version", range(API.min_version, API.max_version + 1))
def test_bytes_are_those_of_the_same_partitions_one_by_one(version: int) -> None:
    spread = [SpreadPartitions(count, nodes) for count in COUNTS for nodes in NODES]
    together = answer(*(MetadataTopic("t", partitions=each) for each in spread))
    written_out = (tuple(each.partition(index) for index in range(each.count)) for each in spread)
    one_by_one = answer(*(MetadataTopic("t", partitions=each) for each in written_out))
    assert encode_response(version, together) == encode_response(version, one_by_one)


def test_partitions_go_round_the_nodes() -> None:
    assert [SpreadPartitions(4, (5, 9)).partition(index).leader_id for index in range(4)] == [5, 9, 5, 9]
    assert SpreadPartitions(1, ()).partition(0).error_code == 5, "LEADER_NOT_AVAILABLE"
