"""What a pod asks of another one about configs is what that one decodes, and so is the answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.wire.request_examples import REQUESTS
from tests.unit.wire.response_examples import RESPONSES

from muster_coordinator.wire import (
    k32_describe_configs,
    k33_alter_configs,
    k44_incremental_alter_configs,
    k74_list_config_resources,
)
from muster_coordinator.wire.api import RequestHeader
from muster_coordinator.wire.codec import Reader

MODULES = (k32_describe_configs, k33_alter_configs, k44_incremental_alter_configs, k74_list_config_resources)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.API.name)
def test_request_and_answer_arrive_as_they_were(module: Any, data: st.DataObject) -> None:
    api = module.API
    version = api.max_version
    request = data.draw(REQUESTS[api.key][0](version))
    header = RequestHeader(api, version, 1, "pod", 0)
    assert api.decode_request(header, module.encode_request(version, request), "") == request
    response = data.draw(RESPONSES[api.key][0](version))
    frame = api.encode_response(version, response)
    assert module.decode_response(Reader(frame, 0, api.flexible(version))) == response
