"""The error codes of a response, from wherever its API puts them (Kafka: AbstractResponse#errorCounts)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import security as s
from muster_coordinator.requests import transactions as t
from muster_coordinator.requests.packed_offsets import AcceptedOffsets

FETCHED_CODE = 4
"""The place of the code in a tuple of `FetchedPartitions`."""


def error_codes(response: Any) -> Sequence[int]:
    """The codes other than NONE, each as often as it is there. A response that names partitions, groups or resources
    has one for each; of large answers, which are made in slices, those of the whole are not looked for."""
    codes_of = _CODES.get(type(response), _of_the_whole)
    return codes_of(response)


def _of_the_whole(response: Any) -> Sequence[int]:
    code = getattr(response, "error_code", 0)
    return (int(code),) if code else ()


def _of_partitions(response: Any) -> Sequence[int]:
    """(topic, ((partition, code), ...)) for each topic."""
    codes: list[int] = []
    for _, partitions in response.topics:
        if not isinstance(partitions, AcceptedOffsets):
            codes += [int(each[1]) for each in partitions if each[1]]
    return codes


def _of_each(parts: Iterable[Any]) -> list[int]:
    return [int(each.error_code) for each in parts if each.error_code]


def _of_fetched_offsets(response: Any) -> Sequence[int]:
    codes = _of_each(response.groups)
    for group in response.groups:
        for _, partitions in () if group.error_code else group.topics:  # a group with an error shows no topics
            if isinstance(partitions, tuple):
                codes += [int(each[FETCHED_CODE]) for each in partitions if each[FETCHED_CODE]]
    return codes


def _of_metadata(response: Any) -> Sequence[int]:
    codes = [*_of_the_whole(response), *_of_each(response.topics)]
    for topic in response.topics:
        if isinstance(topic.partitions, tuple):
            codes += _of_each(topic.partitions)
    return codes


def _of_added_partitions(response: Any) -> Sequence[int]:
    each = [code for one in response.transactions for code in _of_partitions(one)]
    return [*_of_the_whole(response), *each]


def _of_fetched_records(response: Any) -> Sequence[int]:
    partitions = [int(each[1]) for topic in response.topics for each in topic.partitions if each[1]]
    return [*_of_the_whole(response), *partitions]


def _of_markers(response: Any) -> Sequence[int]:
    return [int(code) for _, topics in response.markers for _, each in topics for _, code in each if code]


def _of_whole_and_partitions(response: Any) -> Sequence[int]:
    return [*_of_the_whole(response), *_of_partitions(response)]


_CODES: dict[type, Callable[[Any], Sequence[int]]] = {
    m.OffsetCommitResponse: _of_partitions,
    m.OffsetCommitByIdResponse: _of_partitions,
    m.TxnOffsetCommitResponse: _of_partitions,
    m.TxnOffsetCommitByIdResponse: _of_partitions,
    m.OffsetDeleteResponse: _of_whole_and_partitions,
    m.LeaveGroupResponse: lambda r: [*_of_the_whole(r), *_of_each(r.members)],
    w.OffsetFetchResponses: _of_fetched_offsets,
    w.OffsetFetchByIdResponses: _of_fetched_offsets,
    w.ProduceResponse: _of_partitions,
    w.ListOffsetsResponse: _of_partitions,
    w.FetchResponse: _of_fetched_records,
    w.WriteTxnMarkersResponse: _of_markers,
    w.FindCoordinatorResponse: lambda r: _of_each(r.coordinators),
    w.MetadataResponse: _of_metadata,
    w.DescribeGroupsResponse: lambda r: _of_each(r.groups),
    w.DeleteGroupsResponse: lambda r: _of_each(r.results),
    c.ConsumerGroupDescribeResponse: lambda r: _of_each(r.groups),
    t.AddPartitionsToTxnResponse: _of_added_partitions,
    t.DescribeTransactionsResponse: lambda r: _of_each(r.transactions),
    f.DescribeConfigsResponse: lambda r: _of_each(r.results),
    f.AlterConfigsResponse: lambda r: _of_each(r.results),
    s.CreateAclsResponse: lambda r: _of_each(r.results),
    s.DeleteAclsResponse: lambda r: _of_each(r.results),
    s.DescribeUserScramCredentialsResponse: lambda r: [*_of_the_whole(r), *_of_each(r.results)],
    s.AlterUserScramCredentialsResponse: lambda r: _of_each(r.results),
}
