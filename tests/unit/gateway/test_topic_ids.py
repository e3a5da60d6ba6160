"""Requests that name topics by id become requests by name, and their answers answers by id: as a pod that knows the ids
would do it itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gateway import frames
from tests.unit.wire.request_examples import REQUESTS, describe

from muster_coordinator.listener.handlers.topic_ids import TopicIdHandlers
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.framing import encode_response_frame, read_header
from muster_gateway import apis
from muster_gateway.errors import ClientError, UpstreamError
from muster_gateway.requests import body_position
from muster_gateway.topic_ids import (
    AnswerByName,
    TopicNames,
    ask_for_ids,
    by_name,
    ids_of,
    names_topics_by_id,
    read_request,
    read_topics,
    request_by_name,
)

FEW = settings(max_examples=30, deadline=None)


class View:
    """In place of a pod's: it knows the ids that the gateway was told."""

    def __init__(self, names: dict[bytes, str]) -> None:
        self.names = names
        self.ids = {name: topic_id for topic_id, name in names.items()}

    def name_of(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)

    def id_of(self, name: str) -> bytes:
        return self.ids.get(name, bytes(16))


class Answered:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: int) -> None:
        raise AssertionError(code)


def by_a_pod(request: Any, names: dict[bytes, str], coordinator: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """What the coordinator of a pod that knows the ids is asked, and its client's answer."""
    asked: list[Any] = []

    def route(named: Any, answer: Any) -> None:
        asked.append(named)
        answer.answer(coordinator(named))

    handlers = TopicIdHandlers(View(names), route, route)  # type: ignore[arg-type]
    answered = Answered()
    commits = isinstance(request, m.OffsetCommitByIdRequest)
    (handlers.offset_commit if commits else handlers.offset_fetch)(request, answered)  # type: ignore[operator]
    (response,) = answered.got
    return asked, response


def coordinator(named: Any) -> Any:
    """Partition 0 of each topic does not exist."""
    if isinstance(named, m.OffsetCommitRequest):
        rows = [(name, tuple([(each[0], 0 if each[0] else 3) for each in parts])) for name, parts in named.topics]
        return m.OffsetCommitResponse(tuple(rows))
    found = [(name, tuple([(each, 7, -1, "x", 0) for each in parts])) for name, parts in named.topics or ()]
    return m.OffsetFetchResponse(named.group_id, 0, tuple(found))


def through_the_gateway(key: int, request: Any, names: dict[bytes, str]) -> tuple[list[Any], Any]:
    head = frames.head(key, 10)
    frame = frames.request(key, 10, describe(key, 10, request))
    asked = read_request(head, frame)
    assert asked == request
    assert names_topics_by_id(head)
    named = request_by_name(frame, asked, names)
    if named is None:
        return [], answer_of(AnswerByName(asked, None), head, names)
    header = read_header(named)
    assert (header.api_version, header.client_id) == (9, frames.CLIENT_ID)
    to_pod = header.api.decode_request(header, named, "")
    groups = to_pod.groups if isinstance(to_pod, w.OffsetFetchRequests) else (to_pod,)
    responses = tuple([coordinator(each) for each in groups])
    response = w.OffsetFetchResponses(responses) if isinstance(to_pod, w.OffsetFetchRequests) else responses[0]
    answer = encode_response_frame(header.api, 9, 7, header.api.encode_response(9, response))[4:]
    return list(groups), answer_of(AnswerByName(asked, answer), head, names)


def answer_of(answer: AnswerByName, head: Any, names: dict[bytes, str]) -> bytes:
    return answer.frame(head, names, {})


@FEW
@given(data=st.data())
@pytest.mark.parametrize("key", [apis.OFFSET_COMMIT, apis.OFFSET_FETCH])
def test_pod_is_asked_and_client_answered_as_where_the_pod_knows_the_ids(key: int, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[key][0](10))
    ids = sorted(ids_of(request) - {bytes(16)})  # that of no topic
    known = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    names = {topic_id: f"topic-{topic_id.hex()}" for topic_id in known}
    asked, answer = through_the_gateway(key, request, names)
    expected_asked, expected = by_a_pod(request, names, coordinator)
    body = APIS[key].encode_response(10, expected)
    assert answer == encode_response_frame(APIS[key], 10, 7, body)
    if isinstance(request, m.OffsetCommitByIdRequest):
        assert [m.OffsetCommitRequest(*fields(each)[:-1], 10) for each in asked] == expected_asked
    else:  # a pod asks for equal groups once
        assert set(asked) == set(expected_asked)


def fields(request: m.OffsetCommitRequest) -> tuple[Any, ...]:
    return tuple([getattr(request, name) for name in request.__struct_fields__])


def test_all_offsets_are_shown_by_the_ids_that_brokers_give() -> None:
    request = w.OffsetFetchByIdRequests((m.OffsetFetchByIdRequest("g", None, -1, None, False),))
    topics = (("here", ((0, 5, -1, "", 0),)), ("gone", ((0, 6, -1, "", 0),)))
    response = w.OffsetFetchResponses((m.OffsetFetchResponse("g", 0, topics),))
    answer = encode_response_frame(APIS[9], 9, 7, APIS[9].encode_response(9, response))[4:]
    read = AnswerByName(request, answer)
    assert read.unasked() == {"here", "gone"}
    by_id = w.OffsetFetchByIdResponses((m.OffsetFetchByIdResponse("g", 0, ((b"h" * 16, topics[0][1]),)),))
    body = APIS[9].encode_response(10, by_id)
    frame = read.frame(frames.head(9, 10), {}, {"here": b"h" * 16})
    assert frame == encode_response_frame(APIS[9], 10, 7, body)


def test_time_for_which_a_pod_throttles_is_told() -> None:
    request = m.OffsetCommitByIdRequest("g", -1, "", None, ((b"h" * 16, ((0, 5, -1, None),)),), 10)
    body = APIS[8].encode_response(9, m.OffsetCommitResponse((("t", ((0, 0),)),)))
    answer = (7).to_bytes(4, "big") + b"\0" + (300).to_bytes(4, "big") + body[4:]
    frame = AnswerByName(request, answer).frame(frames.head(8, 10), {b"h" * 16: "t"}, {})
    assert frame[9:13] == (300).to_bytes(4, "big")


@pytest.mark.parametrize("key", [apis.OFFSET_COMMIT, apis.OFFSET_FETCH])
@FEW
@given(garbage=st.binary(max_size=200))
def test_garbage_is_an_error(key: int, garbage: bytes) -> None:
    head = frames.head(key, 10)
    request = m.OffsetCommitByIdRequest("g", -1, "", None, (), 10) if key == 8 else w.OffsetFetchByIdRequests(())
    frame = frames.request(key, 10, describe(key, 10, request))
    try:
        read_request(head, frame[: body_position(frame, True)] + garbage)
    except ClientError:
        pass
    try:
        AnswerByName(request, garbage)
    except UpstreamError:
        pass


# -- names ------------------------------------------------------------------------------------------------------------

ONE, TWO = b"1" * 16, b"2" * 16


def topic(name: str | None, topic_id: bytes, code: int = 0) -> w.MetadataTopic:
    return w.MetadataTopic(name, topic_id, code)


def test_names_are_asked_for_again_when_they_are_old() -> None:
    names = TopicNames()
    assert names.to_ask((ONE, TWO), 0.0) == (ONE, TWO)
    names.learn((topic("a", ONE),), 10.0)
    assert names.to_ask((ONE, TWO), 10.0) == (TWO,)
    assert names.to_ask((ONE,), 10.1) == (ONE,)
    assert names.of((ONE, TWO)) == {ONE: "a"}


@pytest.mark.parametrize("gone", [topic(None, ONE, 100), topic("a", TWO)])
def test_topic_that_is_gone_or_made_anew_has_no_name_under_its_old_id(gone: w.MetadataTopic) -> None:
    names = TopicNames()
    names.learn((topic("a", ONE),), 10.0)
    names.learn((gone,), 11.0)
    assert ONE not in names.of((ONE, TWO))


def test_brokers_are_asked_by_id_and_make_no_topic() -> None:
    frame = ask_for_ids((ONE, TWO))
    header = read_header(frame)
    request = header.api.decode_request(header, frame, "")
    wanted = tuple([w.MetadataRequestTopic(None, each) for each in (ONE, TWO)])
    assert request == w.MetadataRequest(wanted, False, False, False)
    shown = w.MetadataResponse((), "c", 0, (topic("a", ONE), topic(None, TWO, 100)))
    answer = encode_response_frame(header.api, header.api_version, 7, header.api.encode_response(12, shown))[4:]
    assert [(each.name, each.topic_id, each.error_code) for each in read_topics(answer)] == [
        ("a", ONE, 0),
        (None, TWO, 100),
    ]


def test_head_of_the_request_to_a_pod() -> None:
    assert by_name(frames.head(8, 10)) == frames.head(8, 9)
    assert not names_topics_by_id(frames.head(8, 9))
