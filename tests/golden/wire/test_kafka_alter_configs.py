"""AlterConfigs (33) against bytes that Kafka 4.3.1 wrote (kafka-4.3.1-alter-configs.txt)."""

from __future__ import annotations

import pytest
from tests.support.golden import kafka_bytes

from muster_coordinator.requests.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredResource,
    AlterOperation,
    ConfigChange,
    ResourceChanges,
)
from muster_coordinator.wire import k33_alter_configs as k33
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_request_frame, encode_response_frame, read_header

GOLDEN = kafka_bytes("wire/kafka-4.3.1-alter-configs.txt")
CLIENT, CORRELATION_ID = "client-ä", 7
LENGTH_BYTES = 4
VERSIONS = range(k33.API.min_version, k33.API.max_version + 1)


def change(name: str, value: str | None) -> ConfigChange:
    return ConfigChange(name, AlterOperation.SET, value)


OF_A_GROUP = (change("consumer.session.timeout.ms", "50000"), change("ä", None), change("empty", ""))
REQUESTS = {
    "nothing": AlterConfigsRequest((), False),
    "no-configs": AlterConfigsRequest((ResourceChanges(32, "group-ä", ()),), True),
    "configs": AlterConfigsRequest(
        (
            ResourceChanges(32, "group-ä", OF_A_GROUP),
            ResourceChanges(2, "t", (change("retention.ms", "x" * 200),)),
            ResourceChanges(-1, "", ()),
        ),
        False,
    ),
}
ANSWERS = {
    "nothing": AlterConfigsResponse(()),
    "altered": AlterConfigsResponse((AlteredResource(32, "group-ä"),)),
    "refused": AlterConfigsResponse(
        (
            AlteredResource(32, "group-ä", 40, "nö"),
            AlteredResource(-1, "", 42, ""),
            AlteredResource(2, "t" * 200, 29),
        )
    ),
}


def test_every_line_of_kafka_is_compared() -> None:
    requests = {f"request-v{version}-{name}" for version in VERSIONS for name in REQUESTS}
    answers = {f"answer-v{version}-{name}" for version in VERSIONS for name in ANSWERS}
    assert GOLDEN.keys() == requests | answers


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", REQUESTS)
def test_request_of_kafka_is_decoded_and_refused_when_cut(name: str, version: int) -> None:
    frame = GOLDEN[f"request-v{version}-{name}"]
    header = read_header(frame)
    assert (header.api, header.api_version, header.correlation_id) == (k33.API, version, CORRELATION_ID)
    assert header.client_id == CLIENT
    assert k33.decode_request(header, frame, "") == REQUESTS[name]
    for end in range(header.body_position, len(frame)):
        with pytest.raises(WireError):
            k33.decode_request(header, frame[:end], "")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", REQUESTS)
def test_request_to_another_pod_has_the_bytes_of_kafka(name: str, version: int) -> None:
    body = k33.encode_request(version, REQUESTS[name])
    frame = encode_request_frame(k33.API, version, CORRELATION_ID, CLIENT, body)
    assert frame[LENGTH_BYTES:] == GOLDEN[f"request-v{version}-{name}"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ANSWERS)
def test_answer_has_the_bytes_of_kafka_and_is_decoded(name: str, version: int) -> None:
    frame = GOLDEN[f"answer-v{version}-{name}"]
    body = k33.encode_response(version, ANSWERS[name])
    assert encode_response_frame(k33.API, version, CORRELATION_ID, body)[LENGTH_BYTES:] == frame
    assert k33.decode_response(Reader(frame, len(frame) - len(body), k33.API.flexible(version))) == ANSWERS[name]
