"""A large answer in slices has the bytes of the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.records.structs import OffsetCommitValue
from muster_coordinator.requests.cluster import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FetchedTopic,
    FetchResponse,
    ListOffsetsResponse,
    MetadataBroker,
    MetadataResponse,
    MetadataTopic,
    OffsetFetchByIdResponses,
    OffsetFetchResponses,
)
from muster_coordinator.requests.configs import ListConfigResourcesResponse, ListedResource
from muster_coordinator.requests.groups import (
    DeleteGroupResponse,
    DescribedGroup,
    DescribedMember,
    ListedGroup,
    ListGroupsResponse,
    OffsetFetchByIdResponse,
    OffsetFetchResponse,
)
from muster_coordinator.requests.packed_offsets import HeldOffsets
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire import (
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k09_offset_fetch,
    k15_describe_groups,
    k16_list_groups,
    k42_delete_groups,
    k74_list_config_resources,
)

PARTITION = st.tuples(
    st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 100), st.text(max_size=5), st.just(0)
)
TOPICS = st.lists(st.tuples(st.text(min_size=1, max_size=5), st.lists(PARTITION, max_size=5).map(tuple)), max_size=4)
LARGE = tuple((number, number, 0, "", 0) for number in range(SLICE_ENTRIES + 5))
"""More than one slice has."""


def joined(codec: Any, version: int, response: Any) -> bytes:
    slices = codec.slices(version, response)
    assert slices is not None
    made = list(slices)
    assert len(made) > 1
    return b"".join(made)


@given(st.integers(1, 9), st.lists(st.tuples(TOPICS, st.sampled_from([0, 0, 0, 16])), min_size=1, max_size=4))
def test_offset_fetch(version: int, drawn: list[tuple[Any, int]]) -> None:
    groups = [OffsetFetchResponse(f"g{n}", code, tuple(topics)) for n, (topics, code) in enumerate(drawn)]
    groups[0] = OffsetFetchResponse("g0", 0, (*groups[0].topics, ("large", LARGE)))
    response = OffsetFetchResponses(tuple(groups[:1] if version < 8 else groups))
    whole = k09_offset_fetch.encode_response(version, response)
    assert joined(k09_offset_fetch, version, response) == whole


def test_offset_fetch_by_id() -> None:
    response = OffsetFetchByIdResponses((OffsetFetchByIdResponse("g", 0, ((b"i" * 16, LARGE),)),) * 2)
    assert joined(k09_offset_fetch, 10, response) == k09_offset_fetch.encode_response(10, response)


@pytest.mark.parametrize("pending", [(), {3, 7}])
def test_held_offsets_are_what_they_stand_for(pending: Any) -> None:
    stored = [None if p == 5 else (p, OffsetCommitValue(p * 10, 1, "m", 0, -1)) for p in range(10)]
    held = HeldOffsets(list(range(10)), stored, pending)
    expected = [(p, p * 10, 1, "m", 0) for p in range(10)]
    expected[5] = (5, -1, -1, "", 0)
    missing = HeldOffsets(tuple(range(10)), (), pending)
    assert [(p, code) for p, _, _, _, code in missing] == [(p, 88 if p in pending else 0) for p in range(10)]
    for each in pending:
        expected[each] = (each, -1, -1, "", 88)
    assert held == tuple(expected)


def test_small_answers_are_made_as_a_whole() -> None:
    assert k09_offset_fetch.slices(8, OffsetFetchResponses((OffsetFetchResponse("g", 0, ()),))) is None
    assert k16_list_groups.slices(4, ListGroupsResponse(0, (ListedGroup("g", "", "Empty", "classic"),))) is None
    assert k15_describe_groups.slices(4, DescribeGroupsResponse((DescribedGroup("g", 0),), 0)) is None
    assert k74_list_config_resources.slices(1, ListConfigResourcesResponse()) is None
    assert k42_delete_groups.slices(2, DeleteGroupsResponse((DeleteGroupResponse("g", 0),))) is None
    assert k01_fetch.slices(18, FetchResponse(topics=())) is None
    assert k03_metadata.slices(13, MetadataResponse((), None, -1, ())) is None


@pytest.mark.parametrize("version", [4, 7, 12, 18])
def test_fetches_of_many_topics(version: int) -> None:
    topics = tuple(FetchedTopic(f"t{n}", bytes(16), ((0, n % 2 * 3, 5),)) for n in range(1_500))
    response = FetchResponse(topics=topics)
    assert joined(k01_fetch, version, response) == k01_fetch.encode_response(version, response)


@pytest.mark.parametrize("version", [4, 13])
def test_a_fetch_of_many_partitions(version: int) -> None:
    topic = FetchedTopic("t", bytes(16), tuple((n, n % 2 * 3, 5) for n in range(1_500)))
    response = FetchResponse(topics=(topic,))
    assert joined(k01_fetch, version, response) == k01_fetch.encode_response(version, response)


@pytest.mark.parametrize("version", [1, 4, 11])
def test_list_offsets(version: int) -> None:
    partitions = tuple((n, n % 2 * 3, -1, 0, 0) for n in range(1_500))
    for topics in ((("t", partitions),), tuple((f"t{n}", partitions[:1]) for n in range(1_500))):
        response = ListOffsetsResponse(topics)
        assert joined(k02_list_offsets, version, response) == k02_list_offsets.encode_response(version, response)
    assert k02_list_offsets.slices(version, ListOffsetsResponse((("t", partitions[:3]),))) is None


@pytest.mark.parametrize("version", [0, 1, 8, 13])
def test_metadata_of_many_topics(version: int) -> None:
    topics = tuple(MetadataTopic(f"t{n}", error_code=3) for n in range(1_500))
    response = MetadataResponse((MetadataBroker(1, "h", 2, None),), "c", 1, topics)
    assert joined(k03_metadata, version, response) == k03_metadata.encode_response(version, response)


@pytest.mark.parametrize("version", [0, 2])
def test_deletions_of_many_groups(version: int) -> None:
    response = DeleteGroupsResponse(tuple(DeleteGroupResponse(f"g{n}", n % 2 * 69) for n in range(1_500)))
    assert joined(k42_delete_groups, version, response) == k42_delete_groups.encode_response(version, response)


def test_lists_and_descriptions() -> None:
    listed = ListGroupsResponse(0, tuple(ListedGroup(f"g{n}", "p", "Empty", "classic") for n in range(2_500)))
    assert joined(k16_list_groups, 5, listed) == k16_list_groups.encode_response(5, listed)
    named = ListConfigResourcesResponse(0, tuple(ListedResource(32, f"g{n}") for n in range(2_500)))
    assert joined(k74_list_config_resources, 1, named) == k74_list_config_resources.encode_response(1, named)
    members = tuple(DescribedMember(f"m{n}", None, "c", "/h", b"x" * 100, b"y") for n in range(1_500))
    described = DescribeGroupsResponse((DescribedGroup("g", 0, members=members),), 0)
    assert joined(k15_describe_groups, 6, described) == k15_describe_groups.encode_response(6, described)
