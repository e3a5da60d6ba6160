"""Requests and answers of brokers, written by kio."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import strategies as st
from tests.unit.wire import kio_oracle

from muster_coordinator.wire.api import Api
from muster_gateway.apis import RULES
from muster_gateway.requests import RequestHead

CLIENT_ID = "rdkafka-ü"


def _named(key: int) -> Api:
    rule = RULES[key]
    return cast(Api, SimpleNamespace(name=rule.name, key=key))


def versions(key: int) -> list[int]:
    """Those that kio and the gateway know."""
    return [each for each in kio_oracle.versions(RULES[key].name) if each <= RULES[key].max_version]


def request(key: int, version: int, description: dict[str, Any], correlation_id: int = 7) -> bytes:
    """Without its length."""
    api = _named(key)
    header = kio_oracle.encode_request_header(api, version, correlation_id, CLIENT_ID)
    return header + kio_oracle.encode(api, version, "request", description)


def answer(key: int, version: int, description: dict[str, Any], correlation_id: int = 7) -> bytes:
    """Without its length."""
    api = _named(key)
    header = kio_oracle.encode_response_header(api, version, correlation_id)
    return header + kio_oracle.encode(api, version, "response", description)


def head(key: int, version: int, correlation_id: int = 7) -> RequestHead:
    return RequestHead(RULES[key], version, correlation_id)


def chunks(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """`data` cut anywhere."""

    def cut(places: list[int]) -> list[bytes]:
        ends = [*sorted(places), len(data)]
        return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if end > begin]

    return st.lists(st.integers(0, len(data)), max_size=30).map(cut)


def one_by_one(data: bytes) -> list[bytes]:
    return [bytes((byte,)) for byte in data]
