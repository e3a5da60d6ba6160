"""Entities of the versions that Kafka 4.4 added, as kio has them of those before: kio's schemas end with Kafka 4.3.

Source: ApiVersions*.json, TxnOffsetCommit*.json and DeleteGroups*.json of Kafka 4.4.0.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from types import SimpleNamespace
from typing import Any

from kio.schema.api_versions import v4 as api_versions
from kio.schema.delete_groups import v2 as delete_groups
from kio.schema.txn_offset_commit import v5 as txn_offset_commit
from kio.static.primitive import i16, i32

Field = tuple[str, Any, Any]


def _new(kafka_type: str, name: str, kind: Any, default: Any = MISSING) -> Field:
    made = field(metadata={"kafka_type": kafka_type}) if default is MISSING else None
    return name, kind, made or field(metadata={"kafka_type": kafka_type}, default=default)


def _next(before: Any, *new: Field, arrays: Sequence[Field] = (), without: str = "", first: bool = False) -> Any:
    """The entity of the next version: with `new` fields at its end, or `first`, and `arrays` of other elements."""
    others = {name: (name, kind, made) for name, kind, made in arrays}
    kept = []
    for each in fields(before):
        if each.name == without:
            continue
        default = {} if each.default is MISSING else {"default": each.default}
        made = field(metadata=dict(each.metadata), **default)
        kept.append(others.get(each.name, (each.name, each.type, made)))
    namespace = {
        name: getattr(before, name) for name in ("__type__", "__flexible__", "__api_key__", "__header_schema__")
    }
    namespace["__version__"] = i16(before.__version__ + 1)
    chosen = [*new, *kept] if first else [*kept, *new]
    return make_dataclass(before.__name__, chosen, namespace=namespace, frozen=True, kw_only=True)


def _array(name: str, element: Any) -> Field:
    return name, tuple[element, ...], field()


def _commit_by_id(before: Any, topic: str, partition: str) -> SimpleNamespace:
    part = before.__name__.rpartition(".")[2].capitalize()
    partition_class = _next(getattr(before, partition))
    topic_class = _next(
        getattr(before, topic),
        _new("uuid", "topic_id", uuid.UUID | None),
        arrays=[_array("partitions", partition_class)],
        without="name",
        first=True,
    )
    message = _next(
        getattr(before, f"TxnOffsetCommit{part}"),
        arrays=[_array("topics", topic_class)],
    )
    return SimpleNamespace(**{each.__name__: each for each in (partition_class, topic_class, message)})


def _module(*classes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{each.__name__: each for each in classes})


_api_version = _next(api_versions.response.ApiVersion)
_deleted = _next(delete_groups.response.DeletableGroupResult, _new("string", "error_message", str | None))

SCHEMAS: dict[tuple[str, int, str], SimpleNamespace] = {
    ("api_versions", 5, "request"): _module(
        _next(
            api_versions.request.ApiVersionsRequest,
            _new("string", "cluster_id", str | None, None),
            _new("int32", "node_id", i32, i32(-1)),
        )
    ),
    ("api_versions", 5, "response"): _module(
        _api_version,
        _next(api_versions.response.ApiVersionsResponse, arrays=[_array("api_keys", _api_version)]),
    ),
    ("txn_offset_commit", 6, "request"): _commit_by_id(
        txn_offset_commit.request, "TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition"
    ),
    ("txn_offset_commit", 6, "response"): _commit_by_id(
        txn_offset_commit.response, "TxnOffsetCommitResponseTopic", "TxnOffsetCommitResponsePartition"
    ),
    ("delete_groups", 3, "request"): _module(_next(delete_groups.request.DeleteGroupsRequest)),
    ("delete_groups", 3, "response"): _module(
        _deleted, _next(delete_groups.response.DeleteGroupsResponse, arrays=[_array("results", _deleted)])
    ),
}
"""(API, version, "request" or "response") -> what a module of kio's with these entities would have."""
