"""ListConfigResources (74) against bytes that Kafka 4.3.1 wrote (kafka-4.3.1-config-lists.txt)."""

from __future__ import annotations

import pytest
from tests.support.golden import kafka_bytes

from muster_coordinator.requests.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedResource,
)
from muster_coordinator.wire import k74_list_config_resources as k74
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_request_frame, encode_response_frame, read_header

GOLDEN = kafka_bytes("wire/kafka-4.3.1-config-lists.txt")
CLIENT, CORRELATION_ID = "client-ä", 7
ANSWER_HEADER_BYTES = 5
LENGTH_BYTES = 4

REQUESTS = {
    "request-v0-metrics": (0, (16,)),
    "request-v1-all": (1, ()),
    "request-v1-some": (1, (32, 2, -1)),
}
ANSWERS = {
    "answer-v0-empty": (0, ListConfigResourcesResponse()),
    "answer-v0-listed": (
        0,
        ListConfigResourcesResponse(0, (ListedResource(16, "metrics-ä"), ListedResource(16, ""))),
    ),
    "answer-v0-refused": (0, ListConfigResourcesResponse(31)),
    "answer-v1-empty": (1, ListConfigResourcesResponse()),
    "answer-v1-listed": (
        1,
        ListConfigResourcesResponse(
            0, (ListedResource(32, "group-ä"), ListedResource(2, "t"), ListedResource(-1, "x" * 200))
        ),
    ),
    "answer-v1-refused": (1, ListConfigResourcesResponse(35)),
}


def test_every_line_of_kafka_is_compared() -> None:
    assert GOLDEN.keys() == REQUESTS.keys() | ANSWERS.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_request_of_kafka_is_decoded_and_refused_when_cut(name: str) -> None:
    version, types = REQUESTS[name]
    frame = GOLDEN[name]
    header = read_header(frame)
    assert (header.api, header.api_version, header.correlation_id) == (k74.API, version, CORRELATION_ID)
    assert header.client_id == CLIENT
    assert k74.decode_request(header, frame, "") == ListConfigResourcesRequest(types)
    for end in range(header.body_position, len(frame)):
        with pytest.raises(WireError):
            k74.decode_request(header, frame[:end], "")


@pytest.mark.parametrize("name", [name for name, (version, _) in REQUESTS.items() if version >= 1])
def test_request_to_another_pod_has_the_bytes_of_kafka(name: str) -> None:
    version, types = REQUESTS[name]
    body = k74.encode_request(version, ListConfigResourcesRequest(types))
    assert encode_request_frame(k74.API, version, CORRELATION_ID, CLIENT, body)[LENGTH_BYTES:] == GOLDEN[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_has_the_bytes_of_kafka(name: str) -> None:
    version, answer = ANSWERS[name]
    body = k74.encode_response(version, answer)
    assert encode_response_frame(k74.API, version, CORRELATION_ID, body)[LENGTH_BYTES:] == GOLDEN[name]


@pytest.mark.parametrize("name", [name for name, (version, _) in ANSWERS.items() if version >= 1])
def test_answer_of_kafka_is_decoded(name: str) -> None:
    version, answer = ANSWERS[name]
    assert k74.decode_response(Reader(GOLDEN[name], ANSWER_HEADER_BYTES, k74.API.flexible(version))) == answer
