"""`throttle_time_ms` of an answer that is encoded already: where it stands, and how it gets another value than 0.

Encoders write 0: answers that are throttled are rare, and each encoder would need one more argument for them.
Source: the *Response.json of Kafka.
"""

from __future__ import annotations

import struct

from muster_coordinator.wire import k00_produce, k18_api_versions
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.primitives import compact_array_length

SINCE: dict[int, int] = {
    0: 1,
    1: 1,
    2: 2,
    3: 3,
    8: 3,
    9: 3,
    10: 1,
    11: 2,
    12: 1,
    13: 1,
    14: 1,
    15: 1,
    16: 1,
    18: 1,
    22: 0,
    24: 0,
    25: 0,
    26: 0,
    28: 0,
    29: 0,
    30: 0,
    31: 0,
    32: 1,
    33: 0,
    42: 0,
    44: 0,
    47: 0,
    48: 0,
    50: 0,
    51: 0,
    60: 0,
    61: 0,
    65: 0,
    66: 0,
    68: 0,
    69: 0,
    74: 0,
    76: 0,
    88: 0,
}
"""API key -> first version whose answer has the field. Others have none in any version, and are not throttled."""

_TIME = struct.Struct(">i")
_OFFSET_DELETE = 47
_ERROR_BYTES = 2


def with_throttle_time(api: Api, version: int, body: bytes, throttle_ms: int) -> bytes:
    """The same answer with this time (ms); as it is where the version has no such field."""
    if version < SINCE.get(api.key, version + 1):
        return body
    position = _position(api, version, body)
    return body[:position] + _TIME.pack(throttle_ms) + body[position + _TIME.size :]


def _position(api: Api, version: int, body: bytes) -> int:
    """Nearly always the field comes first."""
    if api.key == _OFFSET_DELETE:
        return _ERROR_BYTES
    flexible = api.flexible(version)
    if api.key == k00_produce.KEY:
        return len(body) - _TIME.size - (1 if flexible else 0)  # before the section of tagged fields, which is empty
    if api.key == k18_api_versions.KEY:
        if not flexible:
            return len(body) - _TIME.size
        count, start = compact_array_length(body, _ERROR_BYTES)
        return start + count * k18_api_versions.FLEXIBLE_KEY_BYTES
    return 0
