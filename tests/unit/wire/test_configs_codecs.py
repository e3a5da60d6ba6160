"""DescribeConfigs and IncrementalAlterConfigs against kio's schemas, byte for byte, in every
version. No listener serves them yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.wire import kio_oracle
from tests.unit.wire.request_examples import (
    CLIENT_HOST,
    CLIENT_ID,
    I8,
    MAYBE_TEXT,
    TEXT,
    since,
    some,
)
from tests.unit.wire.response_examples import ERROR

from muster_coordinator.requests import configs as f
from muster_coordinator.wire import k32_describe_configs, k44_incremental_alter_configs
from muster_coordinator.wire.api import Api, RequestHeader
from muster_coordinator.wire.errors import WireError

Description = dict[str, Any]
APIS = {module.API.key: module.API for module in (k32_describe_configs, k44_incremental_alter_configs)}
EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]
FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
Example = tuple[Callable[[int], st.SearchStrategy[Any]], Callable[[Any], Description]]

REQUESTS: dict[int, Example] = {
    32: (
        lambda v: st.builds(
            f.DescribeConfigsRequest,
            resources=some(
                st.builds(f.ConfigResource, resource_type=I8, name=TEXT, keys=st.none() | some(TEXT)),
            ),
            include_synonyms=st.booleans(),
            include_documentation=since(v >= 3, st.booleans(), False),
        ),
        lambda r: {
            "resources": [
                {"resource_type": each.resource_type, "resource_name": each.name, "configuration_keys": each.keys}
                for each in r.resources
            ],
            "include_synonyms": r.include_synonyms,
            "include_documentation": r.include_documentation,
        },
    ),
    44: (
        lambda v: st.builds(
            f.IncrementalAlterConfigsRequest,
            resources=some(
                st.builds(
                    f.ResourceChanges,
                    resource_type=I8,
                    name=TEXT,
                    changes=some(st.builds(f.ConfigChange, name=TEXT, operation=I8, value=MAYBE_TEXT)),
                )
            ),
            validate_only=st.booleans(),
        ),
        lambda r: {
            "resources": [
                {
                    "resource_type": each.resource_type,
                    "resource_name": each.name,
                    "configs": [
                        {"name": one.name, "config_operation": one.operation, "value": one.value}
                        for one in each.changes
                    ],
                }
                for each in r.resources
            ],
            "validate_only": r.validate_only,
        },
    ),
}

CONFIG = st.builds(
    f.DescribedConfig,
    name=TEXT,
    value=MAYBE_TEXT,
    source=I8,
    read_only=st.booleans(),
    sensitive=st.booleans(),
    synonyms=some(st.builds(f.ConfigSynonym, name=TEXT, value=MAYBE_TEXT, source=I8)),
    config_type=I8,
    documentation=MAYBE_TEXT,
)


def _fields(value: Any, *but: str) -> Description:
    return {name: getattr(value, name) for name in value.__struct_fields__ if name not in but}


def _resource(each: Any) -> Description:
    return _fields(each, "configs", "name") | {"resource_name": each.name}


def _config(each: Any) -> Description:
    return _fields(each) | {
        "config_source": each.source,
        "is_sensitive": each.sensitive,
        "synonyms": [_fields(one) for one in each.synonyms],
    }


_RESOURCE = {"resource_type": I8, "name": TEXT, "error_code": ERROR, "error_message": MAYBE_TEXT}

RESPONSES: dict[int, Example] = {
    32: (
        lambda v: st.builds(
            f.DescribeConfigsResponse,
            results=some(st.builds(f.DescribedResource, configs=some(CONFIG, 2), **_RESOURCE)),  # type: ignore[arg-type]
        ),
        lambda r: {
            "results": [_resource(each) | {"configs": [_config(one) for one in each.configs]} for each in r.results]
        },
    ),
    44: (
        lambda v: st.builds(f.IncrementalAlterConfigsResponse, results=some(st.builds(f.AlteredResource, **_RESOURCE))),  # type: ignore[arg-type]
        lambda r: {"responses": [_resource(each) for each in r.results]},
    ),
}


def request_frame(api: Api, version: int, request: Any) -> tuple[RequestHeader, bytes]:
    start = kio_oracle.encode_request_header(api, version, 77, CLIENT_ID)
    body = kio_oracle.encode(api, version, "request", REQUESTS[api.key][1](request))
    return RequestHeader(api, version, 77, CLIENT_ID, len(start)), start + body


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_flexibility_agrees_with_kio(api: Api, version: int) -> None:
    assert api.flexible(version) == kio_oracle.schema(api.name, version, "request").__flexible__
    assert api.flexible(version) == kio_oracle.schema(api.name, version, "response").__flexible__


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_version_of_kio_is_there(api: Api) -> None:
    assert kio_oracle.versions(api.name) == tuple(range(api.min_version, api.max_version + 1))


@FEW
@given(data=st.data())
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_request_written_by_kio_is_decoded(api: Api, version: int, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[api.key][0](version))
    header, frame = request_frame(api, version, request)
    assert api.decode_request(header, frame, CLIENT_HOST) == request
    assert api.decode_request(header, frame + b"\x00\xff", CLIENT_HOST) == request


@settings(FEW, max_examples=2)
@given(data=st.data())
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_truncated_request_is_refused_at_every_byte(api: Api, version: int, data: st.DataObject) -> None:
    header, frame = request_frame(api, version, data.draw(REQUESTS[api.key][0](version)))
    for end in range(max(header.body_position, len(frame) - 1500), len(frame)):
        with pytest.raises(WireError):
            api.decode_request(header, frame[:end], CLIENT_HOST)


@FEW
@given(data=st.data())
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_response_is_what_kio_writes(api: Api, version: int, data: st.DataObject) -> None:
    strategy, description = RESPONSES[api.key]
    response = data.draw(strategy(version))
    expected = kio_oracle.encode(api, version, "response", description(response))
    assert api.encode_response(version, response) == expected
