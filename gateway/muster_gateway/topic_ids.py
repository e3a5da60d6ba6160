"""OffsetCommit and OffsetFetch of version 10, which name topics by their ids, and the same in version 9 with names.

Ids are Kafka's, so the names are asked of brokers. Pods of Muster are asked in version 9: they answer that whether they
know the topics of the Kafka cluster or not. Frames are without their length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.packed_offsets import PackedOffsets
from muster_coordinator.wire import k03_metadata as k03
from muster_coordinator.wire import k08_offset_commit as k08
from muster_coordinator.wire import k09_offset_fetch as k09
from muster_coordinator.wire.codec import Reader, Writer
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_response_frame, read_header
from muster_coordinator.wire.throttling import with_throttle_time
from muster_gateway import apis
from muster_gateway.errors import ClientError
from muster_gateway.group_requests import BY_ID_SINCE
from muster_gateway.requests import RequestHead, body_position
from muster_gateway.rewriting import answer_body, guarded

_BY_NAME = 9
_VERSION = struct.Struct(">h")
_VERSION_AT = 2
_UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_ID)
_NOT_THERE = (_UNKNOWN, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

Request = m.OffsetCommitByIdRequest | w.OffsetFetchByIdRequests


def names_topics_by_id(head: RequestHead) -> bool:
    return head.rule.key in (apis.OFFSET_COMMIT, apis.OFFSET_FETCH) and head.version >= BY_ID_SINCE


def read_request(head: RequestHead, frame: bytes) -> Request:
    """Raises ClientError."""
    try:
        header = read_header(frame)
        request = header.api.decode_request(header, frame, "")
    except WireError as error:
        raise ClientError("malformed_request", f"{head.rule.name} v{head.version}: {error}") from error
    assert isinstance(request, m.OffsetCommitByIdRequest | w.OffsetFetchByIdRequests)
    return request


def ids_of(request: Request) -> set[bytes]:
    if isinstance(request, m.OffsetCommitByIdRequest):
        return {topic_id for topic_id, _ in request.topics}
    return {topic_id for group in request.groups for topic_id, _ in group.topics or ()}


def by_name(head: RequestHead) -> RequestHead:
    """The head of the request that a pod is asked."""
    return head._replace(version=_BY_NAME)


def request_by_name(frame: bytes, request: Request, names: dict[bytes, str]) -> bytes | None:
    """The request that a pod is asked, about the topics in `names`; None: Kafka would not ask the group about it."""
    begin = body_position(frame, True)
    header = frame[:_VERSION_AT] + _VERSION.pack(_BY_NAME) + frame[_VERSION_AT + _VERSION.size : begin]
    writer = Writer(True)
    if isinstance(request, m.OffsetCommitByIdRequest):
        if not any(topic_id in names for topic_id, _ in request.topics):
            return None
        _write_commit(writer, request, names)
    else:
        writer.array(request.groups, lambda group: _write_group(writer, group, names))
        writer.boolean(request.require_stable)
    return header + writer.done()


def _write_commit(writer: Writer, request: m.OffsetCommitByIdRequest, names: dict[bytes, str]) -> None:
    writer.string(request.group_id)
    writer.int32(request.generation_id)
    writer.string(request.member_id)
    writer.nullable_string(request.group_instance_id)
    named = [(names[topic_id], partitions) for topic_id, partitions in request.topics if topic_id in names]
    writer.array_length(len(named))
    for name, partitions in named:
        writer.string(name)
        if isinstance(partitions, PackedOffsets):
            writer.packed_array(len(partitions), partitions.data)
            writer.tagged_fields()
            continue
        writer.array_length(len(partitions))
        for partition, offset, leader_epoch, metadata in partitions:
            writer.int32(partition)
            writer.int64(offset)
            writer.int32(leader_epoch)
            writer.nullable_string(metadata)
            writer.tagged_fields()
        writer.tagged_fields()


def _write_group(writer: Writer, group: m.OffsetFetchByIdRequest, names: dict[bytes, str]) -> None:
    writer.string(group.group_id)
    writer.nullable_string(group.member_id)
    writer.int32(group.member_epoch)
    if group.topics is None:
        writer.null_array()
    else:
        named = [(names[topic_id], partitions) for topic_id, partitions in group.topics if topic_id in names]
        writer.array_length(len(named))
        for name, partitions in named:
            writer.string(name)
            writer.int32_array(partitions)
            writer.tagged_fields()
    writer.tagged_fields()


# -- answers ----------------------------------------------------------------------------------------------------------


class AnswerByName:
    """A pod's answer of version 9, or one of nobody. Raises UpstreamError."""

    def __init__(self, request: Request, frame: bytes | None) -> None:
        self._request = request
        self._throttle_ms = 0
        self._committed: tuple[tuple[str, m.PartitionResults], ...] = ()
        self._fetched: tuple[tuple[str, int, _Fetched], ...] = ()
        if frame is not None:
            self._read(frame)

    @guarded
    def _read(self, frame: bytes) -> None:
        begin = answer_body(frame, True)
        reader = Reader(frame, begin, True)
        self._throttle_ms = reader.int32()
        if isinstance(self._request, m.OffsetCommitByIdRequest):
            self._committed = reader.array(lambda: _read_committed(reader))
        else:
            self._fetched = reader.array(lambda: _read_group(reader))

    def unasked(self) -> set[str]:
        """Names of topics of which the client has given no id: it asked for all of them."""
        if isinstance(self._request, m.OffsetCommitByIdRequest):
            return set()
        groups = zip(self._request.groups, self._fetched, strict=False)
        return {name for asked, (_, _, topics) in groups if asked.topics is None for name, _ in topics}

    def frame(self, head: RequestHead, names: dict[bytes, str], ids: dict[str, bytes]) -> bytes:
        """The client's answer, with its length. `names`: of the ids in the request; `ids`: of `unasked`, those without
        one are left out, as by Kafka."""
        if isinstance(self._request, m.OffsetCommitByIdRequest):
            api, response = k08.API, k08.API.encode_response(head.version, self._commit(self._request, names))
        else:
            api, response = k09.API, k09.API.encode_response(head.version, self._fetch(self._request, names, ids))
        body = with_throttle_time(api, head.version, response, self._throttle_ms)
        return encode_response_frame(api, head.version, head.correlation_id, body)

    def _commit(self, request: m.OffsetCommitByIdRequest, names: dict[bytes, str]) -> m.OffsetCommitByIdResponse:
        """Topics that do not exist, or of which a partition does not, come first, as Kafka answers them."""
        known = {name: topic_id for topic_id, name in names.items()}
        order = {topic_id: place for place, (topic_id, _) in reversed(tuple(enumerate(request.topics)))}
        unknown = [
            (topic_id, tuple([(each[0], _UNKNOWN) for each in partitions]))
            for topic_id, partitions in request.topics
            if topic_id not in names
        ]
        topics = [(known[name], codes) for name, codes in self._committed if name in known]

        def place(topic: tuple[bytes, m.PartitionResults]) -> tuple[bool, int]:
            return all(code not in _NOT_THERE for _, code in topic[1]), order[topic[0]]

        if not unknown:
            return m.OffsetCommitByIdResponse(tuple(topics))
        return m.OffsetCommitByIdResponse(m.each_once(sorted((*unknown, *topics), key=place)))

    def _fetch(
        self, request: w.OffsetFetchByIdRequests, names: dict[bytes, str], ids: dict[str, bytes]
    ) -> w.OffsetFetchByIdResponses:
        known = {name: topic_id for topic_id, name in names.items()}
        groups = []
        for asked, (group_id, code, topics) in zip(request.groups, self._fetched, strict=False):
            id_of = ids if asked.topics is None else known
            found = [(id_of[name], partitions) for name, partitions in topics if name in id_of]
            unknown = [
                (topic_id, tuple([(each, -1, -1, "", _UNKNOWN) for each in partitions]))
                for topic_id, partitions in asked.topics or ()
                if topic_id not in names
            ]
            groups.append(m.OffsetFetchByIdResponse(group_id, code, (*found, *unknown)))
        return w.OffsetFetchByIdResponses(tuple(groups))


_Fetched = tuple[tuple[str, tuple[m.FetchedPartition, ...]], ...]


def _read_committed(reader: Reader) -> tuple[str, m.PartitionResults]:
    def partition() -> tuple[int, int]:
        value = (reader.int32(), reader.int16())
        reader.tagged_fields()
        return value

    topic = (reader.string(), reader.array(partition))
    reader.tagged_fields()
    return topic


def _read_group(reader: Reader) -> tuple[str, int, _Fetched]:
    group_id = reader.string()
    topics = reader.array(lambda: _read_topic(reader))
    value = (group_id, reader.int16(), topics)
    reader.tagged_fields()
    return value


def _read_topic(reader: Reader) -> tuple[str, tuple[m.FetchedPartition, ...]]:
    def partition() -> m.FetchedPartition:
        place = reader.int32(), reader.int64(), reader.int32()
        value = (*place, reader.nullable_string() or "", reader.int16())
        reader.tagged_fields()
        return value

    topic = (reader.string(), reader.array(partition))
    reader.tagged_fields()
    return topic


# -- names ------------------------------------------------------------------------------------------------------------

FRESH_S = 5.0
"""The time for which a broker's word for a name counts. An id that was given out has one name for ever, but the topic
may go."""
_NAMES_MAX = 100_000
"""Topics whose names are remembered; then the memory starts anew."""

METADATA_HEAD = RequestHead(apis.RULES[apis.METADATA], k03.MIRROR_VERSION, 1)
_METADATA_HEADER = struct.pack(">hhih", apis.METADATA, k03.MIRROR_VERSION, METADATA_HEAD.correlation_id, -1) + b"\0"


class TopicNames:
    """The names and ids of topics that brokers have told, shared by all clients: Muster asks who may read a topic."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, float]] = {}  # with the time (s) of the broker's word
        self._ids: dict[str, bytes] = {}

    def learn(self, topics: Iterable[w.MetadataTopic], now_s: float) -> None:
        for topic in topics:
            if topic.error_code or topic.name is None:
                self._names.pop(topic.topic_id, None)
                continue
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
                self._ids.clear()
            before = self._ids.get(topic.name)
            if before not in (None, topic.topic_id):
                self._names.pop(before, None)  # the topic was made anew
            self._ids[topic.name] = topic.topic_id
            self._names[topic.topic_id] = (topic.name, now_s)

    def of(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        """Those that are known."""
        return {topic_id: self._names[topic_id][0] for topic_id in topic_ids if topic_id in self._names}

    def to_ask(self, topic_ids: Iterable[bytes], since_s: float) -> tuple[bytes, ...]:
        """Those of which no broker has spoken since then."""
        return tuple([each for each in topic_ids if each not in self._names or self._names[each][1] < since_s])


def ask_for_ids(topic_ids: Iterable[bytes]) -> bytes:
    """Metadata of the topics with these ids."""
    return _METADATA_HEADER + k03.encode_request_by_id(tuple(topic_ids))


def ask_for_names(names: Iterable[str]) -> bytes:
    """Metadata of the topics with these names."""
    return _METADATA_HEADER + k03.encode_request(tuple(names))


@guarded
def read_topics(frame: bytes) -> tuple[w.MetadataTopic, ...]:
    return k03.decode_response(Reader(frame, answer_body(frame, True), True)).topics
