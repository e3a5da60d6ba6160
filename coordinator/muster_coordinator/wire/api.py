"""`Api`: what one module `kNN_name.py` says about its API key; `RequestHeader`: what every decoder is given."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.wire.errors import WireError

_T = TypeVar("_T")


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """Request header v1 or v2 (RequestHeader.json), already checked against the served versions."""

    api: Api
    api_version: int
    correlation_id: int
    client_id: str  # "" for null, as in Kafka
    body_position: int  # where the request's body starts in its frame

    @property
    def api_key(self) -> int:
        return self.api.key

    @property
    def flexible(self) -> bool:
        return self.api.flexible(self.api_version)


class Api(msgspec.Struct, frozen=True, gc=False):
    """One API key with the versions that are served, and its codec.

    `decode_request(header, frame, client_host)` raises WireError. Like Kafka it ignores bytes after the request.
    `encode_response(version, response)` gives the response's body, without header and length.
    `slices(version, response)` gives the same in pieces of SLICE_ENTRIES entries or fewer; None if it is no larger.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int | None  # None: no version is
    decode_request: Callable[[RequestHeader, bytes, str], object]
    encode_response: Callable[[int, Any], bytes]
    slices: Callable[[int, Any], Iterator[bytes] | None] | None = None  # None: no answer is large

    def flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible


def guarded(decode: Callable[[RequestHeader, bytes, str], _T]) -> Callable[[RequestHeader, bytes, str], _T]:
    """Decorates every `decode_request`: reading after the end of the frame becomes a WireError."""

    @wraps(decode)
    def guard(header: RequestHeader, frame: bytes, client_host: str) -> _T:
        try:
            return decode(header, frame, client_host)
        except (IndexError, struct.error) as error:
            raise WireError(f"the request ends too early, after {len(frame)} bytes") from error

    return guard


def producer_error(code: int, *, knows_fenced: bool) -> int:
    """The code for a client that knows PRODUCER_FENCED, or for an earlier one, which takes INVALID_PRODUCER_EPOCH for
    the same (KafkaApis)."""
    if code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return code
