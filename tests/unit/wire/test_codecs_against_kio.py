"""Every codec against kio's schemas, byte for byte, in every version that is served."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.wire import kio_oracle
from tests.unit.wire.request_examples import CLIENT_HOST, CLIENT_ID, REQUESTS, describe
from tests.unit.wire.response_examples import RESPONSES

from muster_coordinator.wire.api import Api
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_response_frame, read_header

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]
FEW = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def request_frame(api: Api, version: int, request: Any) -> bytes:
    header = kio_oracle.encode_request_header(api, version, 77, CLIENT_ID)
    return header + kio_oracle.encode(api, version, "request", describe(api.key, version, request))


def decode(frame: bytes) -> Any:
    header = read_header(frame)
    return header.api.decode_request(header, frame, CLIENT_HOST)


def test_examples_cover_every_api() -> None:
    assert REQUESTS.keys() == RESPONSES.keys() == APIS.keys()


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_flexibility_agrees_with_kio(api: Api, version: int) -> None:
    assert api.flexible(version) == kio_oracle.schema(api.name, version, "request").__flexible__
    assert api.flexible(version) == kio_oracle.schema(api.name, version, "response").__flexible__


@FEW
@given(data=st.data())
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_request_written_by_kio_is_decoded(api: Api, version: int, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[api.key][0](version))
    frame = request_frame(api, version, request)

    header = read_header(frame)

    assert (header.api_key, header.api_version, header.correlation_id) == (api.key, version, 77)
    assert header.client_id == CLIENT_ID
    assert decode(frame) == request
    # Kafka ignores what comes behind a request, and clients have come to send such bytes.
    assert decode(frame + b"\x00\xff") == request


@settings(FEW, max_examples=2)
@given(data=st.data())
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_truncated_request_is_refused_at_every_byte(api: Api, version: int, data: st.DataObject) -> None:
    frame = request_frame(api, version, data.draw(REQUESTS[api.key][0](version)))
    for end in range(max(0, len(frame) - 1500), len(frame)):
        with pytest.raises(WireError):
            decode(frame[:end])


@FEW
@given(data=st.data())
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_response_is_what_kio_writes(api: Api, version: int, data: st.DataObject) -> None:
    strategy, description = RESPONSES[api.key]
    response = data.draw(strategy(version))

    body = api.encode_response(version, response)
    frame = encode_response_frame(api, version, 99, body)

    expected = kio_oracle.encode(api, version, "response", description(response, version))
    assert body == expected
    payload = kio_oracle.encode_response_header(api, version, 99) + expected
    assert frame == len(payload).to_bytes(4, "big") + payload
