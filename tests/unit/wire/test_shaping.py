"""What a version changes about an answer beyond its layout: sections 2.3 and 11 of the Kafka facts, one test a rule."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.wire import kio_oracle

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as g
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.wire import k00_produce
from muster_coordinator.wire.apis import APIS, api_versions_response
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import read_header


def encoded(key: int, version: int, response: Any, /) -> bytes:
    return APIS[key].encode_response(version, response)


def expected(key: int, version: int, /, **fields: Any) -> bytes:
    return kio_oracle.encode(APIS[key], version, "response", fields)


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_success_says_none_up_to_v3_and_nothing_from_v4(version: int) -> None:
    body = encoded(10, version, w.FindCoordinatorResponse((w.Coordinator("grp", 1, "h", 9092),)))
    node = {"node_id": 1, "host": "h", "port": 9092, "error_code": 0}
    message = "" if version >= 4 else "NONE"
    entry = {**node, "error_message": message, "key": "grp"}
    assert body == expected(10, version, **entry, coordinators=[entry])


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_error_says_its_text_up_to_v3(version: int) -> None:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    body = encoded(10, version, w.FindCoordinatorResponse((w.Coordinator("grp", error_code=code),)))
    message = "" if version >= 4 else "The coordinator is not available."
    entry = {"node_id": -1, "host": "", "port": -1, "error_code": 15, "error_message": message, "key": "grp"}
    assert body == expected(10, version, **entry, coordinators=[entry])


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("name", [None, ""])
def test_join_group_without_protocol_is_empty_before_v7_and_null_after(version: int, name: str | None) -> None:
    body = encoded(11, version, g.JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, protocol_name=name, member_id="m"))
    assert body == expected(
        11,
        version,
        error_code=79,
        generation_id=-1,
        protocol_name="" if version < 7 else None,
        leader="",
        member_id="m",
        members=[],
    )


@pytest.mark.parametrize(("top", "single", "shown"), [(0, 25, 25), (16, 0, 16), (0, 0, 0)])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_leave_group_before_v3_lifts_the_error_of_its_member(version: int, top: int, single: int, shown: int) -> None:
    response = g.LeaveGroupResponse(top, (g.LeftMember("m", None, single),))
    assert encoded(13, version, response) == expected(13, version, error_code=shown)


def test_leave_group_from_v3_keeps_the_error_with_its_member() -> None:
    response = g.LeaveGroupResponse(0, (g.LeftMember("m", None, 25),))
    member = {"member_id": "m", "group_instance_id": None, "error_code": 25}
    assert encoded(13, 3, response) == expected(13, 3, error_code=0, members=[member])


@pytest.mark.parametrize("version", range(1, 10))
def test_offset_fetch_group_error_is_on_every_partition_in_v1_and_at_the_top_later(version: int) -> None:
    request = g.OffsetFetchRequest("grp", None, -1, (("t", (0, 1)),), False)
    failed = refusal(request, ErrorCode.NOT_COORDINATOR)

    body = encoded(9, version, w.OffsetFetchResponses((failed,)))

    partition = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": 16}
    topics = [{"name": "t", "partitions": [{"partition_index": i, **partition} for i in (0, 1)]}]
    group = {"group_id": "grp", "error_code": 16, "topics": topics if version == 1 else []}
    assert body == expected(9, version, **group, groups=[group])


def test_offset_fetch_error_of_all_topics_names_no_partition() -> None:
    request = g.OffsetFetchRequest("grp", None, -1, None, False)
    assert refusal(request, ErrorCode.NOT_COORDINATOR) == g.OffsetFetchResponse("grp", 16, ())


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit_before_v2_hides_that_the_coordinator_loads(version: int) -> None:
    code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    body = encoded(28, version, g.TxnOffsetCommitResponse((("t", ((0, code),)),)))
    shown = {"partition_index": 0, "error_code": 14 if version >= 2 else 15}
    assert body == expected(28, version, topics=[{"name": "t", "partitions": [shown]}])


def test_join_group_refuses_a_client_id_that_makes_no_member_id() -> None:
    frame = (
        kio_oracle.encode_request_header(APIS[11], 5, 1, "c" * 32_750)
        + b"\x00\x03grp"
        + bytes(8)
        + b"\x00\x00"
        + b"\xff\xff"
        + b"\x00\x08consumer"
        + bytes(4)
    )
    header = read_header(frame)
    with pytest.raises(WireError, match="too long to make a member id"):
        header.api.decode_request(header, frame, "/127.0.0.1")


def commit_with_metadata(version: int, metadata: bytes) -> Any:
    frame = kio_oracle.encode_request_header(APIS[8], version, 1, "c") + kio_oracle.encode(
        APIS[8],
        version,
        "request",
        {
            "group_id": "grp",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": -1,
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "?" * len(metadata)}
                    ],
                }
            ],
        },
    ).replace(b"?" * len(metadata), metadata)
    header = read_header(frame)
    return header.api.decode_request(header, frame, "/127.0.0.1")


@pytest.mark.parametrize("version", [2, 7, 9])
def test_metadata_that_is_not_utf8_is_repaired_as_kafka_does(version: int) -> None:
    request = commit_with_metadata(version, b"a\xffb\xc3")
    assert request.topics[0][1][0][3] == "a\ufffdb\ufffd"


@pytest.mark.parametrize("version", [2, 9])
def test_string_too_long_to_repair_is_refused(version: int) -> None:
    with pytest.raises(WireError, match="too long to repair"):
        commit_with_metadata(version, b"\xff" * 32_767)


def test_compact_string_above_kafkas_limit_is_refused() -> None:
    assert commit_with_metadata(9, b"x" * 32_767)
    with pytest.raises(WireError, match="a string of length 32768"):
        commit_with_metadata(9, b"x" * 32_768)


def test_api_versions_lists_what_is_served() -> None:
    response = api_versions_response(w.ApiVersionsRequest("apache-kafka-java", "4.1.0"))
    assert response.error_code == 0
    assert set(response.api_keys) == {(api.key, api.min_version, api.max_version) for api in APIS.values()}


@pytest.mark.parametrize("name", ["", "-a", "a b", "a-", "ü"])
def test_api_versions_refuses_a_software_name_that_kip_511_does_not_allow(name: str) -> None:
    assert api_versions_response(w.ApiVersionsRequest(name, "1")) == w.ApiVersionsResponse(42)
    assert api_versions_response(w.ApiVersionsRequest("a", name)) == w.ApiVersionsResponse(42)


def test_produce_is_refused_for_every_partition_with_a_reason() -> None:
    response = k00_produce.refuse(w.ProduceRequest(1, (("t", (0, 7)),)))
    assert response.topics == (("t", ((0, 42), (7, 42))),)
    assert "group coordinator" in (response.error_message or "")
