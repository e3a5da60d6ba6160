"""Answers that name nodes, in every version, as kio writes and reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from tests.unit.gateway import frames
from tests.unit.wire import kio_oracle

from muster_gateway import apis
from muster_gateway.errors import UpstreamError
from muster_gateway.rewriting import (
    Announced,
    Found,
    Node,
    listed_groups_without,
    read_api_versions,
    read_brokers,
    read_config_resources,
    read_coordinators,
    write_api_versions,
    write_coordinators,
)

FEW = settings(max_examples=25)

SHOWN = [Node(1, "gateway", 9101, "r"), Node(1_000_000, "gateway", 9500)]


def each_version(*keys: int) -> list[tuple[int, int]]:
    return [(key, version) for key in keys for version in frames.versions(key)]


def read(key: int, version: int, frame: bytes) -> Any:
    kind = kio_oracle.schema(apis.RULES[key].name, version, "response")
    header, begin = entity_reader(kind.__header_schema__)(frame, 0)
    assert header.correlation_id == 7
    value, size = entity_reader(kind)(frame, begin)
    assert begin + size == len(frame)
    return value


def brokers_answer(key: int, version: int) -> bytes:
    broker = {"host": "real-broker.internal", "port": 9092}
    if key == apis.DESCRIBE_CLUSTER:
        broker |= {"broker_id": 1, "rack": "r", "is_fenced": True}
        more = {"error_code": 0, "error_message": None, "cluster_id": "c", "controller_id": 1}
    else:
        broker |= {"node_id": 1, "rack": "r"}
        topic = {"error_code": 0, "name": "orders", "topic_id": bytes(16), "is_internal": False, "partitions": ()}
        more = {"cluster_id": "c", "controller_id": 1, "topics": [topic], "error_code": 0}
    return frames.answer(key, version, {"brokers": [broker, broker], **more})


@pytest.mark.parametrize(("key", "version"), each_version(apis.METADATA, apis.DESCRIBE_CLUSTER))
def test_brokers_are_replaced_and_all_else_stays(key: int, version: int) -> None:
    frame = brokers_answer(key, version)
    answer = read_brokers(key, version, frame)
    before = read(key, version, frame)
    has_rack = key == apis.DESCRIBE_CLUSTER or version >= 1
    fenced = key == apis.DESCRIBE_CLUSTER and version >= 2
    assert answer.brokers == (Node(1, "real-broker.internal", 9092, "r" if has_rack else None, fenced),) * 2

    rewritten = answer.with_brokers(SHOWN)

    assert b"real-broker" not in rewritten
    after = read(key, version, rewritten)
    assert [(each.host, each.port) for each in after.brokers] == [("gateway", 9101), ("gateway", 9500)]
    names = [name for name in type(after).__slots__ if name != "brokers"]
    assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]


@pytest.mark.parametrize("version", frames.versions(apis.FIND_COORDINATOR))
def test_coordinators_are_read_and_written(version: int) -> None:
    one = {"node_id": 2, "host": "real", "port": 9092, "error_code": 0, "error_message": "NONE"}
    several = {"coordinators": [{"key": "a", **one}, {"key": "b", **one}]}
    frame = frames.answer(apis.FIND_COORDINATOR, version, several if version >= 4 else one)
    throttle_ms, found = read_coordinators(version, frame)
    message = "NONE" if version >= 1 else None
    keys = ("a", "b") if version >= 4 else ("",)
    assert found == tuple(Found(key, 2, "real", 9092, 0, message) for key in keys)
    assert write_coordinators(version, 7, throttle_ms, found) == frame


@pytest.mark.parametrize("version", frames.versions(apis.LIST_GROUPS))
def test_groups_that_muster_serves_are_left_out_of_kafkas_list(version: int) -> None:
    listed = [
        {"group_id": name, "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
        for name in ("here-1", "there", "here-2")
    ]
    frame = frames.answer(apis.LIST_GROUPS, version, {"error_code": 0, "groups": listed})
    expected = frames.answer(apis.LIST_GROUPS, version, {"error_code": 0, "groups": listed[1:2]})
    assert listed_groups_without(version, frame, lambda group: group.startswith("here")) == expected


@pytest.mark.parametrize("version", frames.versions(apis.API_VERSIONS))
def test_versions_are_the_lower_of_both_and_transaction_version_2_is_hidden(version: int) -> None:
    keys = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, low, high in ((0, 3, 13), (1, 4, 12), (8, 2, 10), (71, 0, 0), (78, 0, 1), (18, 0, 5))
    ]
    features = {
        "supported_features": [{"name": "transaction.version", "min_version": 0, "max_version": 2}],
        "finalized_features_epoch": 9,
        "finalized_features": [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}],
    }
    frame = frames.answer(apis.API_VERSIONS, version, {"error_code": 0, "api_keys": keys, **features})
    shown = read_api_versions(version, frame).through_gateway([(8, 3, 10)])
    after = read(apis.API_VERSIONS, version, write_api_versions(version, 7, shown))
    assert [(each.api_key, each.min_version, each.max_version) for each in after.api_keys] == [
        (0, 3, 11),
        (1, 4, 12),
        (8, 3, 10),
        (18, 0, 4),
    ]
    if version >= 3:
        finalized = [(each.name, each.min_version_level, each.max_version_level) for each in after.finalized_features]
        assert finalized == [("transaction.version", 1, 1)]
        assert after.finalized_features_epoch == 9


def test_versions_without_any_in_common_are_not_announced() -> None:
    assert Announced({0: (12, 13)}).through_gateway([]).versions == {}


READERS: list[tuple[int, Any]] = [
    (apis.METADATA, lambda version, frame: read_brokers(apis.METADATA, version, frame)),
    (apis.DESCRIBE_CLUSTER, lambda version, frame: read_brokers(apis.DESCRIBE_CLUSTER, version, frame)),
    (apis.FIND_COORDINATOR, read_coordinators),
    (apis.API_VERSIONS, read_api_versions),
    (apis.LIST_CONFIG_RESOURCES, lambda version, frame: read_config_resources(frame)),
    (apis.LIST_GROUPS, lambda version, frame: listed_groups_without(version, frame, lambda _: True)),
]


@pytest.mark.parametrize(("key", "reader"), READERS)
@FEW
@given(garbage=st.binary(max_size=200), version=st.integers(0, 4))
def test_garbage_is_an_upstream_error_or_an_answer(key: int, reader: Any, garbage: bytes, version: int) -> None:
    try:
        reader(min(version, apis.RULES[key].max_version), garbage)
    except UpstreamError:
        pass


@pytest.mark.parametrize(("key", "version"), each_version(apis.METADATA, apis.DESCRIBE_CLUSTER))
def test_an_answer_that_ends_within_its_brokers_is_an_upstream_error(key: int, version: int) -> None:
    frame = brokers_answer(key, version)
    within = frame.index(b"real-broker") + 3
    for end in range(within):
        with pytest.raises(UpstreamError):
            read_brokers(key, version, frame[:end])
