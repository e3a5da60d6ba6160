"""DeleteGroups 3 through the gateway: pods of any release are asked in version 2, and clients get what 4.4 answers."""

from __future__ import annotations

import pytest
from tests.unit.gateway import frames
from tests.unit.gateway.servers import Client, Server, framed, gateway, plain

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import DeleteGroupsResponse
from muster_coordinator.requests.groups import DeleteGroupResponse
from muster_coordinator.wire.framing import encode_response_frame
from muster_coordinator.wire.k42_delete_groups import API_4_4
from muster_gateway import apis
from muster_gateway.coordinators import apis_of_groups
from muster_gateway.errors import UpstreamError
from muster_gateway.group_requests import refused
from muster_gateway.later_versions import earlier, is_later, later_answer
from muster_gateway.rewriting import Announced

KEY, PODS, CLIENTS = apis.DELETE_GROUPS, 2, 3


def request(version: int, *groups: str) -> bytes:
    """The bodies of both versions are the same."""
    frame = frames.request(KEY, PODS, {"groups_names": groups})
    return frame[:2] + version.to_bytes(2, "big") + frame[4:]


def answer(version: int, **codes: int) -> bytes:
    results = tuple([DeleteGroupResponse(group, code) for group, code in codes.items()])
    body = API_4_4.encode_response(version, DeleteGroupsResponse(results))
    return encode_response_frame(API_4_4, version, 7, body)[4:]


def test_request_is_that_of_the_version_before() -> None:
    head = frames.head(KEY, CLIENTS)
    assert is_later(head)
    before, frame = earlier(head, request(CLIENTS, "g", "h"))
    assert (before, frame) == (frames.head(KEY, PODS), request(PODS, "g", "h"))
    assert not is_later(before)
    assert not is_later(frames.head(apis.METADATA, 13))


@pytest.mark.parametrize("codes", [{}, {"g": 0}, {"g": int(ErrorCode.NON_EMPTY_GROUP), "h": 0}])
def test_answer_has_no_text_of_any_error(codes: dict[str, int]) -> None:
    assert later_answer(answer(PODS, **codes)) == answer(CLIENTS, **codes)


def test_answer_that_ends_too_early_is_told() -> None:
    with pytest.raises(UpstreamError):
        later_answer(answer(PODS, g=0)[:-3])


def test_refusal_has_the_clients_version() -> None:
    found = refused(frames.head(KEY, CLIENTS), request(CLIENTS, "g"), ErrorCode.NOT_COORDINATOR)
    assert found[4:] == answer(CLIENTS, g=int(ErrorCode.NOT_COORDINATOR))


@pytest.mark.parametrize("of_brokers", [PODS, CLIENTS])
def test_clients_are_shown_what_brokers_have(of_brokers: int) -> None:
    shown = Announced({KEY: (0, of_brokers)}).through_gateway(apis_of_groups())
    assert shown.versions == {KEY: (0, of_brokers)}


async def test_group_at_muster_is_deleted_in_the_newest_version() -> None:
    asked: list[tuple[str, int, int]] = []

    async def pod(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        asked.append(("pod", key, version))
        return framed(answer(PODS, **{"m-1": int(ErrorCode.NON_EMPTY_GROUP)}))

    async def broker(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        asked.append(("broker", key, version))
        return plain(correlation_id)

    async with Server(0, broker) as kafka, Server(1, pod) as muster, gateway(kafka, muster) as (_, port):
        client = await Client.connect(port)
        client.writer.write(framed(request(CLIENTS, "m-1")))
        assert await client.receive() == answer(CLIENTS, **{"m-1": int(ErrorCode.NON_EMPTY_GROUP)})
        client.writer.write(framed(request(CLIENTS, "at-kafka")))
        await client.receive()
        client.close()
    assert asked == [("pod", KEY, PODS), ("broker", KEY, CLIENTS)]
