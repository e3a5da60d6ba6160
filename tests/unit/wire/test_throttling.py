"""`throttle_time_ms` is put into encoded answers where Kafka's schemas have it, and nothing else changes."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from tests.unit.wire import kio_oracle, test_transaction_codecs
from tests.unit.wire.response_examples import RESPONSES

from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import transactions as t
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.k18_api_versions import API as API_VERSIONS
from muster_coordinator.wire.served import KAFKA_4_3
from muster_coordinator.wire.throttling import with_throttle_time
from muster_coordinator.wire.transaction_apis import TRANSACTION_FEATURES

DESCRIBE_TRANSACTIONS = 65
EXAMPLES: dict[int, Any] = {
    **{key: strategy for key, (strategy, _) in (RESPONSES | test_transaction_codecs.RESPONSES).items()},
    DESCRIBE_TRANSACTIONS: lambda version: st.just(t.DescribeTransactionsResponse(())),
}
THROTTLE_MS = 0x01020304


def read(api: Api, version: int, body: bytes) -> Any:
    response, size = entity_reader(kio_oracle.schema(api.name, version, "response"))(body, 0)
    assert size == len(body)
    return response


@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("api", KAFKA_4_3.all, ids=lambda api: api.name)
def test_time_is_where_the_schema_has_it_in_every_version(api: Api, data: st.DataObject) -> None:
    for version in range(api.min_version, api.max_version + 1):
        body = api.encode_response(version, data.draw(EXAMPLES[api.key](version)))
        throttled = with_throttle_time(api, version, body, THROTTLE_MS)
        fields = {each.name for each in dataclasses.fields(kio_oracle.schema(api.name, version, "response"))}
        if "throttle_time" not in fields:
            assert throttled == body
            continue
        after = read(api, version, throttled)
        assert after.throttle_time == timedelta(milliseconds=THROTTLE_MS), version
        assert dataclasses.replace(after, throttle_time=timedelta()) == read(api, version, body)


@pytest.mark.parametrize("version", range(5))
def test_answer_about_what_is_served_has_features_behind_the_time(version: int) -> None:
    keys = tuple((key, 0, 1) for key in APIS)
    body = API_VERSIONS.encode_response(version, w.ApiVersionsResponse(0, keys, TRANSACTION_FEATURES))
    after = read(API_VERSIONS, version, with_throttle_time(API_VERSIONS, version, body, THROTTLE_MS))
    assert len(after.api_keys) == len(keys)
    if version:
        assert after.throttle_time == timedelta(milliseconds=THROTTLE_MS)
