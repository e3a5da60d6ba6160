"""ApiVersions with a feature, read by another implementation of the protocol."""

from __future__ import annotations

import pytest
from kio.schema.api_versions import v3, v4
from kio.serial import entity_reader

from muster_coordinator.requests.cluster import ApiVersionsRequest
from muster_coordinator.wire.apis import api_versions_response
from muster_coordinator.wire.k18_api_versions import API
from muster_coordinator.wire.served import KAFKA_4_3
from muster_coordinator.wire.transaction_apis import TRANSACTION_FEATURES


@pytest.mark.parametrize(("version", "response", "supported"), [(3, v3, []), (4, v4, [("transaction.version", 0, 2)])])
def test_transaction_version_2_is_finalized(version: int, response: object, supported: list[object]) -> None:
    """Version 3 cannot say that level 0 is supported, so it says nothing of what is (KIP-1022)."""
    body = API.encode_response(
        version, api_versions_response(ApiVersionsRequest(), KAFKA_4_3.all, TRANSACTION_FEATURES)
    )
    read, size = entity_reader(response.response.ApiVersionsResponse)(body, 0)  # type: ignore[attr-defined]
    assert size == len(body)
    assert [(f.name, f.min_version, f.max_version) for f in read.supported_features] == supported
    assert [(f.name, f.min_version_level, f.max_version_level) for f in read.finalized_features] == [
        ("transaction.version", 2, 2)
    ]
    assert read.finalized_features_epoch == 1
    assert {key.api_key for key in read.api_keys} == {api.key for api in KAFKA_4_3.all}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_without_tagged_fields_say_nothing_of_it(version: int) -> None:
    plain = API.encode_response(version, api_versions_response(ApiVersionsRequest(), KAFKA_4_3.all))
    assert plain == API.encode_response(
        version, api_versions_response(ApiVersionsRequest(), KAFKA_4_3.all, TRANSACTION_FEATURES)
    )
