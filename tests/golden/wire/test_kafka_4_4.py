"""The versions that Kafka 4.4 added, against bytes that Kafka 4.4.0 wrote (kafka-4.4.0-versions.txt)."""

from __future__ import annotations

import io

import pytest
from kio.serial import entity_reader, entity_writer
from tests.support.golden import kafka_bytes
from tests.support.kafka import entity
from tests.unit.wire.kio_oracle import folder

from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.wire.errors import UnsupportedRequestError, WireError
from muster_coordinator.wire.framing import encode_response_frame, read_header
from muster_coordinator.wire.served import KAFKA_4_3, KAFKA_4_4

GOLDEN = kafka_bytes("wire/kafka-4.4.0-versions.txt")
CLIENT, CORRELATION_ID = "client-ä", 7
LENGTH_BYTES = 4
ORDERS, ZERO = bytes(range(1, 17)), bytes(16)
BY_KEY = {api.key: api for api in KAFKA_4_4.all}

REQUESTS: dict[str, tuple[int, int, object]] = {
    "request-api-versions-of-a-server": (18, 5, w.ApiVersionsRequest("java", "4.4.0", "cluster-ä", 3)),
    "request-api-versions-of-any": (18, 5, w.ApiVersionsRequest("java", "4.4.0")),
    "request-txn-offset-commit-of-nobody": (
        28,
        6,
        m.TxnOffsetCommitByIdRequest("tx-ä", "g", 77, 5, -1, "", None, (), 6),
    ),
    "request-txn-offset-commit-of-a-member": (
        28,
        6,
        m.TxnOffsetCommitByIdRequest(
            "tx-ä", "g", 77, 5, 9, "m", "i", ((ORDERS, ((0, 42, 3, "x"), (1, 43, -1, None))), (ZERO, ())), 6
        ),
    ),
    "request-delete-groups": (42, 3, w.DeleteGroupsRequest(("g", "group-ä"))),
}
ANSWERS: dict[str, tuple[int, int, object]] = {
    "answer-api-versions-another-server": (18, 5, w.ApiVersionsResponse(129)),
    "answer-txn-offset-commit-of-topics": (
        28,
        6,
        m.TxnOffsetCommitByIdResponse(((ORDERS, ((0, 0), (1, 113))), (ZERO, ((2, 100),)))),
    ),
    "answer-txn-offset-commit-of-nothing": (28, 6, m.TxnOffsetCommitByIdResponse(())),
    "answer-delete-groups": (
        42,
        3,
        w.DeleteGroupsResponse((m.DeleteGroupResponse("g", 0), m.DeleteGroupResponse("group-ä", 68))),
    ),
}
UNKNOWN_VERSION = "answer-api-versions-unknown-version"


def test_every_line_of_kafka_is_compared() -> None:
    assert GOLDEN.keys() == REQUESTS.keys() | ANSWERS.keys() | {UNKNOWN_VERSION}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_of_kafka_is_decoded_and_refused_when_cut(name: str) -> None:
    key, version, request = REQUESTS[name]
    frame = GOLDEN[name]
    header = read_header(frame, KAFKA_4_4.versions)
    assert (header.api, header.api_version, header.correlation_id) == (BY_KEY[key], version, CORRELATION_ID)
    assert header.client_id == CLIENT
    assert header.api.decode_request(header, frame, "") == request
    for end in range(header.body_position, len(frame)):
        with pytest.raises(WireError):
            header.api.decode_request(header, frame[:end], "")


@pytest.mark.parametrize("name", REQUESTS)
def test_request_of_kafka_is_not_served_as_kafka_4_3(name: str) -> None:
    with pytest.raises(UnsupportedRequestError) as caught:
        read_header(GOLDEN[name], KAFKA_4_3.versions)
    assert (caught.value.answer is not None) is name.startswith("request-api-versions")


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_has_the_bytes_of_kafka(name: str) -> None:
    key, version, answer = ANSWERS[name]
    api = BY_KEY[key]
    body = api.encode_response(version, answer)
    assert encode_response_frame(api, version, CORRELATION_ID, body)[LENGTH_BYTES:] == GOLDEN[name]


def test_unknown_version_of_api_versions_has_the_answer_of_kafka() -> None:
    version_6 = GOLDEN["request-api-versions-of-any"][:3] + b"\x06" + GOLDEN["request-api-versions-of-any"][4:]
    with pytest.raises(UnsupportedRequestError) as caught:
        read_header(version_6, KAFKA_4_4.versions)
    assert caught.value.answer is not None
    assert caught.value.answer[LENGTH_BYTES:] == GOLDEN[UNKNOWN_VERSION]


@pytest.mark.parametrize("name", [*REQUESTS, *ANSWERS])
def test_entities_of_the_tests_have_the_bytes_of_kafka(name: str) -> None:
    """Those of `tests.support.kafka_4_4`, which kio lacks."""
    part = "request" if name in REQUESTS else "response"
    key, version, _ = (REQUESTS | ANSWERS)[name]
    of_part = entity(folder(BY_KEY[key].name), version, part)
    header, position = entity_reader(of_part.__header_schema__)(GOLDEN[name], 0)
    assert header.correlation_id == CORRELATION_ID
    message, size = entity_reader(of_part)(GOLDEN[name], position)
    assert position + size == len(GOLDEN[name])
    written = io.BytesIO()
    entity_writer(of_part)(written, message)
    assert written.getvalue() == GOLDEN[name][position:]
