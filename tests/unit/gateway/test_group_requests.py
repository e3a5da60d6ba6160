"""What is read of groups' requests and answers, beside kio's reading of the protocol."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gateway import frames
from tests.unit.wire import request_examples
from tests.unit.wire.request_examples import REQUESTS

from muster_coordinator.errors import ErrorCode
from muster_coordinator.wire.apis import APIS
from muster_gateway import apis
from muster_gateway.apis import Treatment
from muster_gateway.errors import ClientError, UpstreamError
from muster_gateway.group_requests import group_ids, is_repeatable, refused, was_moved

FEW = settings(max_examples=8)
AT_MUSTER = [
    (key, version)
    for key, rule in apis.RULES.items()
    if rule.treatment is Treatment.GROUP and key in APIS
    for version in frames.versions(key)
    if version >= APIS[key].min_version
]
RETRIED = [
    (key, version) for key, version in AT_MUSTER if key not in (apis.TXN_OFFSET_COMMIT, apis.CONSUMER_GROUP_HEARTBEAT)
]


def written(key: int, version: int, data: st.DataObject) -> tuple[Any, bytes]:
    request = data.draw(REQUESTS[key][0](version))
    return request, frames.request(key, version, request_examples.describe(key, version, request))


def groups_of(request: Any) -> tuple[str, ...]:
    if hasattr(request, "groups"):
        return tuple(each.group_id for each in request.groups)
    return tuple(request.group_ids) if hasattr(request, "group_ids") else (request.group_id,)


@FEW
@given(data=st.data())
@pytest.mark.parametrize(("key", "version"), AT_MUSTER)
def test_groups_are_read(key: int, version: int, data: st.DataObject) -> None:
    if key == apis.CONSUMER_GROUP_HEARTBEAT:
        group = data.draw(st.text(max_size=9))
        more = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": None, "topic_partitions": None}
        frame = frames.request(key, version, {"group_id": group, "server_assignor": None, **more})
        assert group_ids(frames.head(key, version), frame) == (group,)
        return
    request, frame = written(key, version, data)
    assert group_ids(frames.head(key, version), frame) == groups_of(request)


@FEW
@given(data=st.data())
@pytest.mark.parametrize(("key", "version"), RETRIED)
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE])
def test_an_answer_says_whether_the_group_moved(key: int, version: int, code: ErrorCode, data: st.DataObject) -> None:
    request, frame = written(key, version, data)
    head = frames.head(key, version)
    moved = was_moved(head, refused(head, frame, code)[4:])
    one_group = len(groups_of(request)) == 1
    topics = getattr(request, "topics", ()) or ()
    if key == apis.OFFSET_FETCH and version < 2:
        topics = request.groups[0].topics
    by_partition = (apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.TXN_OFFSET_COMMIT)
    says_it = key not in by_partition or (key == apis.OFFSET_FETCH and version >= 2)
    assert moved == (code is not ErrorCode.NONE and one_group and (says_it or any(each[1] for each in topics)))


@pytest.mark.parametrize(("key", "version"), [(apis.OFFSET_FETCH, 7), (apis.OFFSET_FETCH, 8), (apis.OFFSET_COMMIT, 8)])
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE])
def test_of_a_large_answer_only_the_first_partition_is_read(key: int, version: int, code: ErrorCode) -> None:
    """All offsets of a large group are megabytes, and the event loop is everybody's."""
    partitions: list[dict[str, Any]] = [{"partition_index": n, "error_code": int(code)} for n in range(5_000)]
    topic: dict[str, Any] = {"name": "orders", "partitions": partitions}
    body: dict[str, Any] = {"topics": [topic]}
    if key == apis.OFFSET_FETCH:
        for each in partitions:
            each |= {"committed_offset": 1, "committed_leader_epoch": -1, "metadata": ""}
        group = body | {"error_code": int(code)}
        body = {"groups": [{"group_id": "m-1", **group}]} if version >= 8 else group
    answer = frames.answer(key, version, body)
    unread = answer[:100] + b"\xff" * (len(answer) - 100)
    assert was_moved(frames.head(key, version), unread) == (code is not ErrorCode.NONE)


def test_a_refusal_of_several_groups_is_for_each_of_them() -> None:
    frame = frames.request(
        apis.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ("a", "b"), "include_authorized_operations": False}
    )
    answer = refused(frames.head(apis.CONSUMER_GROUP_DESCRIBE, 1), frame, ErrorCode.GROUP_ID_NOT_FOUND)[4:]
    described = [
        {
            "error_code": 69,
            "error_message": None,
            "group_id": name,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": (),
            "authorized_operations": -(2**31),
        }
        for name in ("a", "b")
    ]
    assert answer == frames.answer(apis.CONSUMER_GROUP_DESCRIBE, 1, {"groups": described})


@pytest.mark.parametrize(
    ("version", "member_id", "repeatable"), [(3, "", False), (3, "m-1", True), (4, "", True), (9, "", True)]
)
def test_a_join_without_a_member_id_is_sent_once_before_members_get_one(
    version: int, member_id: str, repeatable: bool
) -> None:
    protocols = [{"name": "range", "metadata": b""}]
    frame = frames.request(
        apis.JOIN_GROUP,
        version,
        {
            "group_id": "g",
            "session_timeout": 10,
            "rebalance_timeout": 10,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": protocols,
            "reason": None,
        },
    )
    assert is_repeatable(frames.head(apis.JOIN_GROUP, version), frame) is repeatable


@pytest.mark.parametrize(("version", "member_id", "repeatable"), [(0, "", False), (0, "m-1", True), (1, "", True)])
def test_a_consumer_that_joins_without_an_id_is_sent_once(version: int, member_id: str, repeatable: bool) -> None:
    values = {"group_id": "g", "member_id": member_id, "member_epoch": 0, "server_assignor": None}
    frame = frames.request(
        apis.CONSUMER_GROUP_HEARTBEAT, version, {**values, "subscribed_topic_names": ("t",), "topic_partitions": ()}
    )
    assert is_repeatable(frames.head(apis.CONSUMER_GROUP_HEARTBEAT, version), frame) is repeatable


@FEW
@given(garbage=st.binary(max_size=60), data=st.data())
@pytest.mark.parametrize("key", sorted({key for key, _ in RETRIED}))
def test_garbage_is_an_error_of_its_sender(key: int, garbage: bytes, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([version for each, version in RETRIED if each == key]))
    head = frames.head(key, version)
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + garbage
    try:
        group_ids(head, frame)
        is_repeatable(head, frame)
        refused(head, frame, ErrorCode.NOT_COORDINATOR)
    except ClientError:
        pass
    try:
        was_moved(head, bytes(4) + garbage)
    except UpstreamError:
        pass
