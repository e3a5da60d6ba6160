"""Requests that real clients sent (`tests/golden/wire/capture.py`), decoded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.wire.golden import FRAMES

from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as g
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import read_header


def decode(frame: bytes) -> Any:
    header = read_header(frame)
    return header.api.decode_request(header, frame, "/127.0.0.1")


def of(client: str, request: str) -> Any:
    (frame,) = (f for name, f in FRAMES.items() if name.startswith(client) and name.endswith(": " + request))
    return decode(frame)


@pytest.mark.parametrize("name", FRAMES)
def test_golden_request_is_decoded_and_refused_when_cut(name: str) -> None:
    frame = FRAMES[name]
    header = read_header(frame)
    assert name.endswith(f": {header.api.name} v{header.api_version}")
    decode(frame)
    for end in range(len(frame)):
        with pytest.raises(WireError):
            decode(frame[:end])


def test_commit_of_librdkafka() -> None:
    request = of("confluent-kafka", "OffsetCommit v9")
    # confluent-kafka sends the zero byte behind a C string with it.
    topics = (("orders", ((0, 42, -1, "é\0"),)),)
    assert request == g.OffsetCommitRequest("golden-group", 1, "rdkafka-1", None, -1, topics, api_version=9)


def test_commit_of_kafkas_own_client() -> None:
    """Its classic consumer names topics, also where ids are served."""
    request = of("kafka-clients", "OffsetCommit v9")
    assert (request.group_id, request.topics) == ("golden-group", (("orders", ((0, 45, -1, "x"),)),))
    assert of("kafka-clients", "ListOffsets v11").topics == (("orders", ((0, 0, -1),)),)


def test_commit_of_kafka_python() -> None:
    request = of("kafka-python", "OffsetCommit v8")
    assert (request.group_id, request.topics) == ("golden-group", (("orders", ((0, 43, -1, "x"),)),))


def test_commit_of_aiokafka() -> None:
    request = of("aiokafka", "OffsetCommit v3")
    assert (request.topics, request.retention_time_ms) == ((("orders", ((0, 44, -1, ""),)),), -1)


def test_join_of_librdkafka() -> None:
    request = of("confluent-kafka", "JoinGroup v5")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert (request.protocol_type, request.client_id) == ("consumer", "rdkafka")
    assert [name for name, _ in request.protocols] == ["range", "roundrobin"]
    assert all(b"orders" in metadata for _, metadata in request.protocols)


def test_fetch_by_topic_id_of_librdkafka() -> None:
    request = of("confluent-kafka", "Fetch v16")
    (topic,) = request.topics
    assert (topic.name, topic.topic_id, topic.partitions) == (None, b"orders-topic-id!", ((0, 0, 0),))


def test_offset_fetch_and_coordinator_look_up() -> None:
    assert of("confluent-kafka", "OffsetFetch v9").groups[0].topics == (("orders", (0,)),)
    assert of("confluent-kafka", "FindCoordinator v2") == w.FindCoordinatorRequest(0, ("golden-group",))
    assert of("kafka-python", "FindCoordinator v6") == w.FindCoordinatorRequest(0, ("golden-group",))


def test_software_of_the_clients() -> None:
    assert of("confluent-kafka", "ApiVersions v3").client_software_name == "confluent-kafka-python"
    assert of("kafka-python", "ApiVersions v4").client_software_name == "kafka-python"
