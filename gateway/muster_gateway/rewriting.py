"""Answers that name nodes, with the gateway's addresses in place of the brokers'.

Only what holds addresses is decoded; all other bytes of an answer are taken over as they are. Frames are without their
length, and begin with the response header. Each function raises WireError, IndexError or struct.error for an answer
that cannot be read: `guarded` makes an UpstreamError of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.configs import ListConfigResourcesResponse
from muster_coordinator.wire import k74_list_config_resources as k74
from muster_coordinator.wire.codec import Reader, Writer
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.primitives import skip_tagged_fields
from muster_gateway import apis
from muster_gateway.errors import UpstreamError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_THROTTLE_BYTES = 4


@dataclass(frozen=True)
class Node:
    """A broker as an answer names it. `fenced`: DescribeCluster v2 (KIP-1073)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


def guarded(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Reading what a broker should not have sent becomes an UpstreamError."""

    @wraps(read)
    def guard(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return read(*args, **kwargs)
        except (WireError, IndexError, struct.error) as error:
            raise UpstreamError(f"an answer that cannot be read: {error or 'it ends too early'}") from error

    return guard


def answer_body(frame: bytes, flexible: bool) -> int:
    """The position at which the body of an answer begins."""
    return skip_tagged_fields(frame, 4) if flexible else 4


class BrokersAnswer:
    """An answer to Metadata or DescribeCluster, cut around its array of brokers."""

    def __init__(self, key: int, version: int, before: bytes, brokers: tuple[Node, ...], after: bytes) -> None:
        self.brokers = brokers
        self._key = key
        self._version = version
        self._before = before
        self._after = after

    def with_brokers(self, brokers: Sequence[Node]) -> bytes:
        """The answer's frame, with these in place of its own."""
        writer = Writer(apis.RULES[self._key].flexible(self._version))

        def node(value: Node) -> None:
            writer.int32(value.node_id)
            writer.string(value.host)
            writer.int32(value.port)
            if self._key == apis.DESCRIBE_CLUSTER or self._version >= 1:
                writer.nullable_string(value.rack)
            if self._key == apis.DESCRIBE_CLUSTER and self._version >= 2:
                writer.boolean(value.fenced)
            writer.tagged_fields()

        writer.array(brokers, node)
        return self._before + writer.so_far() + self._after


@guarded
def read_brokers(key: int, version: int, frame: bytes) -> BrokersAnswer:
    """Cut an answer to Metadata (3) or DescribeCluster (60)."""
    flexible = apis.RULES[key].flexible(version)
    reader = Reader(frame, answer_body(frame, flexible), flexible)

    def node() -> Node:
        node_id, host, port = reader.int32(), reader.string(), reader.int32()
        rack = reader.nullable_string() if key == apis.DESCRIBE_CLUSTER or version >= 1 else None
        fenced = reader.boolean() if key == apis.DESCRIBE_CLUSTER and version >= 2 else False
        reader.tagged_fields()
        return Node(node_id, host, port, rack, fenced)

    if key == apis.DESCRIBE_CLUSTER:
        reader.int32()  # throttle_time_ms
        reader.int16()
        reader.nullable_string()
        if version >= 1:
            reader.int8()  # endpoint_type
        reader.string()
        reader.int32()  # controller_id
    elif version >= 3:
        reader.int32()
    begin = reader.position
    brokers = reader.array(node)
    return BrokersAnswer(key, version, frame[:begin], brokers, frame[reader.position :])


@dataclass(frozen=True)
class Found:
    """One coordinator of an answer to FindCoordinator. `key`: "" before v4."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int = 0
    error_message: str | None = None


@guarded
def read_coordinators(version: int, frame: bytes) -> tuple[int, tuple[Found, ...]]:
    """(throttle time in ms, coordinators)."""
    flexible = apis.RULES[apis.FIND_COORDINATOR].flexible(version)
    reader = Reader(frame, answer_body(frame, flexible), flexible)
    throttle_ms = reader.int32() if version >= 1 else 0

    def found() -> Found:
        key, node_id, host, port = reader.string(), reader.int32(), reader.string(), reader.int32()
        code, message = reader.int16(), reader.nullable_string()
        reader.tagged_fields()
        return Found(key, node_id, host, port, code, message)

    if version >= 4:
        return throttle_ms, reader.array(found)
    code = reader.int16()
    message = reader.nullable_string() if version >= 1 else None
    return throttle_ms, (Found("", reader.int32(), reader.string(), reader.int32(), code, message),)


def write_coordinators(version: int, correlation_id: int, throttle_ms: int, coordinators: Sequence[Found]) -> bytes:
    """The frame without its length."""
    flexible = apis.RULES[apis.FIND_COORDINATOR].flexible(version)
    writer = Writer(flexible)
    writer.int32(correlation_id)
    writer.tagged_fields()
    if version >= 1:
        writer.int32(throttle_ms)

    def found(value: Found) -> None:
        writer.string(value.key)
        writer.int32(value.node_id)
        writer.string(value.host)
        writer.int32(value.port)
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.tagged_fields()

    if version >= 4:
        writer.array(coordinators, found)
        return writer.done()
    (only,) = coordinators
    writer.int16(only.error_code)
    if version >= 1:
        writer.nullable_string(only.error_message)
    writer.int32(only.node_id)
    writer.string(only.host)
    writer.int32(only.port)
    return writer.done()


@guarded
def listed_groups_without(version: int, frame: bytes, left_out: Callable[[str], bool]) -> bytes:
    """An answer to ListGroups less the groups for which `left_out` holds."""
    flexible = apis.RULES[apis.LIST_GROUPS].flexible(version)
    reader = Reader(frame, answer_body(frame, flexible), flexible)
    if version >= 1:
        reader.int32()
    reader.int16()
    begin = reader.position

    def group() -> tuple[str, ...]:
        value = tuple([reader.string() for _ in range(2 + (version >= 4) + (version >= 5))])
        reader.tagged_fields()
        return value

    groups = reader.array(group)
    writer = Writer(flexible)

    def write(value: tuple[str, ...]) -> None:
        for text in value:
            writer.string(text)
        writer.tagged_fields()

    writer.array([each for each in groups if not left_out(each[0])], write)
    return frame[:begin] + writer.so_far() + frame[reader.position :]


def refuse_to_list_groups(version: int, correlation_id: int, code: ErrorCode) -> bytes:
    """The frame without its length."""
    writer = Writer(apis.RULES[apis.LIST_GROUPS].flexible(version))
    writer.int32(correlation_id)
    writer.tagged_fields()
    if version >= 1:
        writer.int32(0)  # throttle_time_ms
    writer.int16(code)
    writer.array((), writer.string)
    return writer.done()


@guarded
def read_config_resources(frame: bytes) -> ListConfigResourcesResponse:
    """An answer to ListConfigResources of version 1."""
    return k74.decode_response(Reader(frame, answer_body(frame, True), True))


@guarded
def with_config_resources(frame: bytes, response: ListConfigResourcesResponse) -> bytes:
    """The answer to ListConfigResources of version 1 that has this header and throttle time."""
    begin = answer_body(frame, True) + _THROTTLE_BYTES
    return frame[:begin] + k74.encode_response(k74.API.max_version, response)[_THROTTLE_BYTES:]


_SUPPORTED, _EPOCH, _FINALIZED = 0, 1, 2
_FEATURE_LIMITS = {"transaction.version": 1}
"""Levels above need a group coordinator that calls the transaction coordinator (KIP-890)."""


@dataclass(frozen=True)
class Announced:
    """The versions and features of a broker. Features: (name, lowest, highest level); `finalized`: by name."""

    versions: dict[int, tuple[int, int]]
    error_code: int = 0
    throttle_ms: int = 0
    supported: tuple[tuple[str, int, int], ...] = ()
    epoch: int = -1
    finalized: tuple[tuple[str, int, int], ...] = ()

    def through_gateway(self, group_apis: Iterable[tuple[int, int, int]]) -> Announced:
        """The versions that hold through the gateway: for each API the lower of the broker's and the gateway's, and
        for those of groups also of Muster's, whose (key, lowest, highest version) are given."""
        own = {key: (0, rule.max_version) for key, rule in apis.RULES.items()}
        for key, low, high in group_apis:
            own[key] = (low, min(high, own[key][1]))
        versions: dict[int, tuple[int, int]] = {}
        for key, (low, high) in self.versions.items():
            if key in own:
                low, high = max(low, own[key][0]), min(high, own[key][1])
                if low <= high:
                    versions[key] = low, high
        return Announced(
            versions, self.error_code, self.throttle_ms, _limited(self.supported), self.epoch, _limited(self.finalized)
        )


def _limited(features: tuple[tuple[str, int, int], ...]) -> tuple[tuple[str, int, int], ...]:
    """A finalized feature has one level, its lowest and highest: clients refuse a lowest above the highest."""
    limits = [_FEATURE_LIMITS.get(name, high) for name, _, high in features]
    return tuple(
        (name, min(low, limit), min(high, limit)) for (name, low, high), limit in zip(features, limits, strict=True)
    )


@guarded
def read_api_versions(version: int, frame: bytes) -> Announced:
    """Its response header is v0 in every version."""
    flexible = apis.RULES[apis.API_VERSIONS].flexible(version)
    reader = Reader(frame, 4, flexible)

    def api() -> tuple[int, int, int]:
        value = reader.int16(), reader.int16(), reader.int16()
        reader.tagged_fields()
        return value

    error_code = reader.int16()
    versions = {key: (low, high) for key, low, high in reader.array(api)}
    throttle_ms = reader.int32() if version >= 1 else 0
    tags = reader.tagged_values()
    supported = _read_features(tags[_SUPPORTED]) if _SUPPORTED in tags else ()
    finalized = _read_features(tags[_FINALIZED]) if _FINALIZED in tags else ()
    epoch = int.from_bytes(tags.get(_EPOCH, b"\xff"), "big", signed=True)
    # A finalized feature has its highest level first.
    return Announced(versions, error_code, throttle_ms, supported, epoch, tuple((n, b, a) for n, a, b in finalized))


def write_api_versions(version: int, correlation_id: int, announced: Announced) -> bytes:
    """The frame without its length."""
    writer = Writer(apis.RULES[apis.API_VERSIONS].flexible(version))

    def api(value: tuple[int, tuple[int, int]]) -> None:
        writer.int16(value[0])
        writer.int16(value[1][0])
        writer.int16(value[1][1])
        writer.tagged_fields()

    writer.int32(correlation_id)
    writer.int16(announced.error_code)
    writer.array(sorted(announced.versions.items()), api)
    if version >= 1:
        writer.int32(announced.throttle_ms)
    return writer.done(
        (
            # Before v4 a level of 0 must not be shown (KIP-1022).
            (_SUPPORTED, _features([each for each in announced.supported if version >= 4 or each[1] > 0])),
            (_EPOCH, announced.epoch.to_bytes(8, "big", signed=True)),
            (_FINALIZED, _features([(name, high, low) for name, low, high in announced.finalized if high > 0])),
        )
    )


def _read_features(content: bytes) -> tuple[tuple[str, int, int], ...]:
    reader = Reader(content, 0, True)

    def feature() -> tuple[str, int, int]:
        value = reader.string(), reader.int16(), reader.int16()
        reader.tagged_fields()
        return value

    return reader.array(feature)


def _features(features: Sequence[tuple[str, int, int]]) -> bytes:
    writer = Writer(True)

    def feature(value: tuple[str, int, int]) -> None:
        writer.string(value[0])
        writer.int16(value[1])
        writer.int16(value[2])
        writer.tagged_fields()

    writer.array(features, feature)
    return writer.so_far()
