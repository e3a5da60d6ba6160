"""The codecs of the transaction coordinator against kio's schemas, byte for byte, in every version."""

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
    I16,
    I32,
    I64,
    MAYBE_TEXT,
    TEXT,
    since,
    some,
    topics,
)
from tests.unit.wire.response_examples import ERROR

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as g
from muster_coordinator.requests import transactions as m
from muster_coordinator.wire.api import Api, RequestHeader
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.transaction_apis import MODULES, TRANSACTION_APIS

Description = dict[str, Any]
EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in TRANSACTION_APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]
FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

PARTITIONS = topics(I32)
RESULTS = topics(st.tuples(I32, ERROR))
FENCED_SINCE = {22: 4, 24: 2, 25: 2, 26: 2}


def _named(value: Any, partitions: str = "partitions", name: str = "name") -> list[Description]:
    return [{name: topic, partitions: indexes} for topic, indexes in value]


def _results(value: Any, code: Callable[[int], int]) -> list[Description]:
    return [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code(error)} for index, error in codes
            ],
        }
        for topic, codes in value
    ]


# -- requests ---------------------------------------------------------------------------------------------------------


def _transaction(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        m.AddPartitionsRequest,
        transactional_id=TEXT,
        producer_id=I64,
        producer_epoch=I16,
        topics=PARTITIONS,
        api_version=st.just(v),
        verify_only=since(v >= 4, st.booleans(), False),
    )


def _describe_add_partitions(r: Any, v: int) -> Description:
    if v >= 4:
        return {
            "transactions": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "verify_only": each.verify_only,
                    "topics": _named(each.topics),
                }
                for each in r.transactions
            ]
        }
    (only,) = r.transactions
    return {
        "v3_and_below_transactional_id": only.transactional_id,
        "v3_and_below_producer_id": only.producer_id,
        "v3_and_below_producer_epoch": only.producer_epoch,
        "v3_and_below_topics": _named(only.topics),
    }


Example = tuple[Callable[[int], st.SearchStrategy[Any]], Callable[[Any, int], Description]]

REQUESTS: dict[int, Example] = {
    22: (
        lambda v: st.builds(
            m.InitProducerIdRequest,
            transactional_id=MAYBE_TEXT,
            transaction_timeout_ms=I32,
            producer_id=since(v >= 3, I64, -1),
            producer_epoch=since(v >= 3, I16, -1),
        ),
        lambda r, v: {
            "transactional_id": r.transactional_id,
            "transaction_timeout": r.transaction_timeout_ms,
            "producer_id": r.producer_id,
            "producer_epoch": r.producer_epoch,
        },
    ),
    24: (
        lambda v: st.builds(
            m.AddPartitionsToTxnRequest,
            transactions=some(_transaction(v)) if v >= 4 else st.tuples(_transaction(v)),
        ),
        _describe_add_partitions,
    ),
    25: (
        lambda v: st.builds(
            m.AddOffsetsToTxnRequest, transactional_id=TEXT, producer_id=I64, producer_epoch=I16, group_id=TEXT
        ),
        lambda r, v: {
            "transactional_id": r.transactional_id,
            "producer_id": r.producer_id,
            "producer_epoch": r.producer_epoch,
            "group_id": r.group_id,
        },
    ),
    26: (
        lambda v: st.builds(
            m.EndTxnRequest,
            transactional_id=TEXT,
            producer_id=I64,
            producer_epoch=I16,
            committed=st.booleans(),
            api_version=st.just(v),
        ),
        lambda r, v: {
            "transactional_id": r.transactional_id,
            "producer_id": r.producer_id,
            "producer_epoch": r.producer_epoch,
            "committed": r.committed,
        },
    ),
    61: (
        lambda v: st.builds(w.DescribePartitionsProducersRequest, topics=PARTITIONS),
        lambda r, v: {"topics": _named(r.topics, "partition_indexes")},
    ),
    65: (
        lambda v: st.builds(m.DescribeTransactionsRequest, transactional_ids=some(TEXT)),
        lambda r, v: {"transactional_ids": r.transactional_ids},
    ),
    66: (
        lambda v: st.builds(
            m.ListTransactionsRequest,
            states=some(TEXT),
            producer_ids=some(I64),
            duration_ms=since(v >= 1, I64, -1),
            pattern=since(v >= 2, MAYBE_TEXT, None),
        ),
        lambda r, v: {
            "state_filters": r.states,
            "producer_id_filters": r.producer_ids,
            "duration_filter": r.duration_ms,
            "transactional_id_pattern": r.pattern,
        },
    ),
}


# -- responses --------------------------------------------------------------------------------------------------------


def _code(api_key: int, v: int) -> Callable[[int], int]:
    """What a version is told for an error: those that do not know PRODUCER_FENCED get INVALID_PRODUCER_EPOCH."""

    def told(code: int) -> int:
        unknown = code == ErrorCode.PRODUCER_FENCED and v < FENCED_SINCE[api_key]
        return int(ErrorCode.INVALID_PRODUCER_EPOCH) if unknown else code

    return told


def _producer(r: Any, v: int, api_key: int) -> Description:
    return {
        "error_code": _code(api_key, v)(r.error_code),
        "producer_id": r.producer_id,
        "producer_epoch": r.producer_epoch,
    }


def _describe_added(r: Any, v: int) -> Description:
    code = _code(24, v)
    if v < 4:
        return {"results_by_topic_v3_and_below": _results(r.transactions[0].topics, code)}
    return {
        "error_code": r.error_code,
        "results_by_transaction": [
            {"transactional_id": each.transactional_id, "topic_results": _results(each.topics, code)}
            for each in r.transactions
        ],
    }


_PRODUCERS = st.builds(
    g.DescribeProducersResponse,
    error_code=ERROR,
    producers=some(
        st.builds(
            g.OpenProducer, producer_id=I64, producer_epoch=I32, last_ms=I64, coordinator_epoch=I32, start_offset=I64
        )
    ),
)


def _describe_producers(r: g.DescribeProducersResponse) -> list[Description]:
    return [
        {
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "last_sequence": -1,
            "last_timestamp": each.last_ms,
            "coordinator_epoch": each.coordinator_epoch,
            "current_txn_start_offset": each.start_offset,
        }
        for each in r.producers
    ]


_ADDED = st.builds(m.AddPartitionsResponse, transactional_id=TEXT, topics=RESULTS)

RESPONSES: dict[int, Example] = {
    22: (
        lambda v: st.builds(m.InitProducerIdResponse, error_code=ERROR, producer_id=I64, producer_epoch=I16),
        lambda r, v: _producer(r, v, 22),
    ),
    24: (
        lambda v: st.builds(
            m.AddPartitionsToTxnResponse,
            transactions=some(_ADDED) if v >= 4 else st.tuples(_ADDED),
            error_code=since(v >= 4, ERROR, 0),
        ),
        _describe_added,
    ),
    25: (
        lambda v: st.builds(m.AddOffsetsToTxnResponse, error_code=ERROR),
        lambda r, v: {"error_code": _code(25, v)(r.error_code)},
    ),
    26: (
        lambda v: st.builds(m.EndTxnResponse, error_code=ERROR, producer_id=I64, producer_epoch=I16),
        lambda r, v: _producer(r, v, 26),
    ),
    61: (
        lambda v: st.builds(w.DescribePartitionsProducersResponse, topics=topics(st.tuples(I32, _PRODUCERS))),
        lambda r, v: {
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": index,
                            "error_code": found.error_code,
                            "error_message": None,
                            "active_producers": _describe_producers(found),
                        }
                        for index, found in partitions
                    ],
                }
                for topic, partitions in r.topics
            ]
        },
    ),
    66: (
        lambda v: st.builds(
            m.ListTransactionsResponse,
            error_code=ERROR,
            unknown_states=some(TEXT),
            transactions=some(st.builds(m.ListedTransaction, transactional_id=TEXT, producer_id=I64, state=TEXT)),
        ),
        lambda r, v: {
            "error_code": r.error_code,
            "unknown_state_filters": r.unknown_states,
            "transaction_states": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": each.state,
                }
                for each in r.transactions
            ],
        },
    ),
}
"""Without DescribeTransactions: kio's start time is no number."""


# -- tests ------------------------------------------------------------------------------------------------------------


def request_frame(api: Api, version: int, request: Any) -> tuple[RequestHeader, bytes]:
    start = kio_oracle.encode_request_header(api, version, 77, CLIENT_ID)
    body = kio_oracle.encode(api, version, "request", REQUESTS[api.key][1](request, version))
    return RequestHeader(api, version, 77, CLIENT_ID, len(start)), start + body


def test_they_are_not_served_yet_and_each_has_examples() -> None:
    assert TRANSACTION_APIS.keys().isdisjoint(APIS)
    assert list(TRANSACTION_APIS) == sorted(TRANSACTION_APIS) == sorted(REQUESTS)
    assert RESPONSES.keys() == TRANSACTION_APIS.keys() - {65}
    assert [module.__name__.rpartition(".")[2].split("_")[0] for module in MODULES] == [
        f"k{key}" for key in TRANSACTION_APIS
    ]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_flexibility_agrees_with_kio(api: Api, version: int) -> None:
    assert api.flexible(version) == kio_oracle.schema(api.name, version, "request").__flexible__
    assert api.flexible(version) == kio_oracle.schema(api.name, version, "response").__flexible__


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
@pytest.mark.parametrize(("api", "version"), [each for each in EVERY_VERSION if each.values[0].key in RESPONSES])  # type: ignore[attr-defined]
def test_response_is_what_kio_writes(api: Api, version: int, data: st.DataObject) -> None:
    strategy, description = RESPONSES[api.key]
    response = data.draw(strategy(version))
    expected = kio_oracle.encode(api, version, "response", description(response, version))
    assert api.encode_response(version, response) == expected


@pytest.mark.parametrize("key", FENCED_SINCE)
def test_fenced_producer_is_told_so_as_its_version_knows_it(key: int) -> None:
    """Each version on both sides of the change."""
    fenced: dict[int, Any] = {
        22: m.InitProducerIdResponse(ErrorCode.PRODUCER_FENCED),
        24: m.AddPartitionsToTxnResponse((m.AddPartitionsResponse("x", (("t", ((0, ErrorCode.PRODUCER_FENCED),)),)),)),
        25: m.AddOffsetsToTxnResponse(ErrorCode.PRODUCER_FENCED),
        26: m.EndTxnResponse(ErrorCode.PRODUCER_FENCED),
    }
    api, since_version = TRANSACTION_APIS[key], FENCED_SINCE[key]
    before, after = (api.encode_response(version, fenced[key]) for version in (since_version - 1, since_version))
    assert b"\x00\x2f" in before
    assert b"\x00\x5a" in after


def test_description_of_a_transaction_is_that_of_the_schema() -> None:
    """By hand: error, id, state, time-out, start, producer id and epoch, topics."""
    found = m.DescribedTransaction(ErrorCode.NONE, "tx", "Empty", 60_000, -1, 7, 3, (("__consumer_offsets", (1, 300)),))
    body = TRANSACTION_APIS[65].encode_response(0, m.DescribeTransactionsResponse((found,)))
    assert body == (
        bytes(4)
        + b"\x02"
        + bytes(2)
        + b"\x03tx\x06Empty"
        + (60_000).to_bytes(4, "big")
        + b"\xff" * 8
        + (7).to_bytes(8, "big")
        + (3).to_bytes(2, "big")
        + b"\x02\x13__consumer_offsets\x03\0\0\0\x01\0\0\x01\x2c\0"
        + b"\0\0"
    )
