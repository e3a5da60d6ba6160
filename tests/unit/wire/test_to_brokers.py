"""What a mirror asks brokers about a group that moves is what Kafka's schemas say, and so is what it reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.wire.response_examples import RESPONSES

from muster_coordinator.requests.groups import OffsetFetchResponse
from muster_coordinator.wire import k08_offset_commit, k09_offset_fetch, k15_describe_groups
from muster_coordinator.wire.api import RequestHeader
from muster_coordinator.wire.codec import Reader


@pytest.mark.parametrize("module", [k09_offset_fetch, k15_describe_groups], ids=lambda module: module.API.name)
def test_request_names_the_group(module: Any) -> None:
    version = module.MIRROR_VERSION
    header = RequestHeader(module.API, version, 1, "mirror", 0)
    decoded = module.API.decode_request(header, module.encode_request("grüße"), "")
    (group,) = decoded.groups
    assert group.group_id == "grüße"
    if module is k09_offset_fetch:
        assert (group.topics, group.require_stable) == (None, True)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_description_is_read_as_it_was_written(data: st.DataObject) -> None:
    version = k15_describe_groups.MIRROR_VERSION
    response = data.draw(RESPONSES[15][0](version))
    reader = Reader(k15_describe_groups.API.encode_response(version, response), 0, True)
    for read, written in zip(k15_describe_groups.decode_response(reader), response.groups, strict=True):
        assert (read.group_id, read.error_code, read.group_state) == (
            written.group_id,
            written.error_code,
            written.group_state,
        )
        assert (read.protocol_type, read.protocol_data, read.members) == (
            written.protocol_type,
            written.protocol_data,
            written.members,
        )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_offsets_are_read_as_they_were_written(data: st.DataObject) -> None:
    version = k09_offset_fetch.MIRROR_VERSION
    (written,) = data.draw(RESPONSES[9][0](version)).groups
    response = k09_offset_fetch.OffsetFetchResponses((written,))
    reader = Reader(k09_offset_fetch.API.encode_response(version, response), 0, True)
    read = k09_offset_fetch.decode_response(reader, written.group_id)
    topics = () if written.error_code else written.topics
    assert read == OffsetFetchResponse(
        written.group_id, written.error_code, tuple([(topic, tuple(each)) for topic, each in topics])
    )


_OFFSETS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 1 << 60), st.integers(-1, 9), st.none() | st.text(max_size=5)),
    max_size=3,
)


@settings(max_examples=30, deadline=None)
@given(topics=st.lists(st.tuples(st.text(min_size=1, max_size=4), _OFFSETS), max_size=3))
def test_offsets_are_committed_by_nobody(topics: list[Any]) -> None:
    version = k08_offset_commit.MIRROR_VERSION
    header = RequestHeader(k08_offset_commit.API, version, 1, "mirror", 0)
    read = k08_offset_commit.API.decode_request(header, k08_offset_commit.encode_request("grüße", topics), "")
    assert (read.group_id, read.generation_id, read.member_id, read.group_instance_id) == ("grüße", -1, "", None)
    assert [(topic, list(partitions)) for topic, partitions in read.topics] == topics


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_results_of_a_commit_are_read_as_they_were_written(data: st.DataObject) -> None:
    version = k08_offset_commit.MIRROR_VERSION
    written = data.draw(RESPONSES[8][0](version))
    reader = Reader(k08_offset_commit.API.encode_response(version, written), 0, True)
    assert k08_offset_commit.decode_response(reader) == tuple(
        (topic, tuple(partitions)) for topic, partitions in written.topics
    )
