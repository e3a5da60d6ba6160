"""What a mirror asks brokers about a group that moves is what Kafka's schemas say, and so is what it reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.wire import kio_oracle
from tests.unit.wire.response_examples import RESPONSES

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import (
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from muster_coordinator.requests.groups import OffsetFetchResponse
from muster_coordinator.requests.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from muster_coordinator.wire import (
    k03_metadata,
    k09_offset_fetch,
    k10_find_coordinator,
    k15_describe_groups,
    k22_init_producer_id,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k28_txn_offset_commit,
    k69_consumer_group_describe,
)
from muster_coordinator.wire.api import RequestHeader
from muster_coordinator.wire.codec import Reader

METADATA = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


@pytest.mark.parametrize(
    "module", [k09_offset_fetch, k15_describe_groups, k69_consumer_group_describe], ids=lambda module: module.API.name
)
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
def test_description_of_consumers_is_read_as_it_was_written(data: st.DataObject) -> None:
    version = k69_consumer_group_describe.MIRROR_VERSION
    response = data.draw(RESPONSES[69][0](version))
    reader = Reader(k69_consumer_group_describe.API.encode_response(version, response), 0, True)
    for read, written in zip(k69_consumer_group_describe.decode_response(reader), response.groups, strict=True):
        assert replace(read, authorized_operations=None) == replace(written, authorized_operations=None)


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
    body = k28_txn_offset_commit.encode_request("an id", 7, 3, "grüße", topics)
    read: Any = _decoded(k28_txn_offset_commit, body)
    assert (read.transactional_id, read.producer_id, read.producer_epoch) == ("an id", 7, 3)
    assert (read.group_id, read.generation_id, read.member_id, read.group_instance_id) == ("grüße", -1, "", None)
    assert [(topic, list(partitions)) for topic, partitions in read.topics] == topics


def test_transactions_are_asked_for_as_producers_do() -> None:
    started: Any = _decoded(k22_init_producer_id, k22_init_producer_id.encode_request("an id", 15_000))
    assert started == InitProducerIdRequest("an id", 15_000)
    begun: Any = _decoded(k25_add_offsets_to_txn, k25_add_offsets_to_txn.encode_request("an id", 7, 3, "grüße"))
    assert begun == AddOffsetsToTxnRequest("an id", 7, 3, "grüße")
    ended: Any = _decoded(k26_end_txn, k26_end_txn.encode_request("an id", 7, 3))
    assert ended == EndTxnRequest("an id", 7, 3, True, k26_end_txn.MIRROR_VERSION)
    found: Any = _decoded(k10_find_coordinator, k10_find_coordinator.encode_request(("an id",), KEY_TYPE_TRANSACTION))
    assert found == FindCoordinatorRequest(KEY_TYPE_TRANSACTION, ("an id",))


def _decoded(module: Any, body: bytes) -> object:
    decoded: object = module.API.decode_request(RequestHeader(module.API, module.MIRROR_VERSION, 1, "m", 0), body, "")
    return decoded


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_results_of_a_commit_are_read_as_they_were_written(data: st.DataObject) -> None:
    written = data.draw(RESPONSES[28][0](k28_txn_offset_commit.MIRROR_VERSION))
    assert _answered(k28_txn_offset_commit, written) == tuple(
        (topic, tuple(partitions)) for topic, partitions in written.topics
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_answers_about_transactions_are_read_as_they_were_written(data: st.DataObject) -> None:
    code = data.draw(st.sampled_from(ErrorCode))
    assert _answered(k25_add_offsets_to_txn, AddOffsetsToTxnResponse(code)) == code
    assert _answered(k26_end_txn, EndTxnResponse(code)) == code
    started = InitProducerIdResponse(code, data.draw(st.integers(-1, 1 << 60)), data.draw(st.integers(-1, 1 << 14)))
    assert _answered(k22_init_producer_id, started) == started
    found = data.draw(RESPONSES[10][0](k10_find_coordinator.MIRROR_VERSION))
    read: Any = _answered(k10_find_coordinator, found)
    assert [(each.key, each.node_id, each.host, each.port, each.error_code) for each in read.coordinators] == [
        (each.key, each.node_id, each.host, each.port, each.error_code) for each in found.coordinators
    ]


def _answered(module: Any, written: object) -> object:
    reader = Reader(module.API.encode_response(module.MIRROR_VERSION, written), 0, True)
    read: object = module.decode_response(reader)
    return read


@pytest.mark.parametrize("name", ["", "t", None])
def test_names_do_not_count_where_an_id_is_given(name: str | None) -> None:
    """Java's consumers of regular expressions send the empty name with each id."""
    one, two = b"1" * 16, b"2" * 16
    topics = [{"name": name, "topic_id": one}, {"name": "u", "topic_id": bytes(16)}, {"name": "v", "topic_id": two}]
    frame = kio_oracle.encode(k03_metadata.API, 12, "request", METADATA | {"topics": topics})
    request = k03_metadata.API.decode_request(RequestHeader(k03_metadata.API, 12, 1, "java", 0), frame, "")
    assert isinstance(request, MetadataRequest)
    assert request.topics == (MetadataRequestTopic(None, one), MetadataRequestTopic(None, two))
