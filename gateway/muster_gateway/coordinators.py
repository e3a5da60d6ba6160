"""FindCoordinator: groups that Muster serves are at its pods, all else is where Kafka says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import KEY_TYPE_GROUP, FindCoordinatorRequest
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.codec import Writer
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import read_header
from muster_gateway import apis
from muster_gateway.apis import Treatment
from muster_gateway.errors import ClientError
from muster_gateway.later_versions import OF_PODS
from muster_gateway.muster import Muster
from muster_gateway.nodes import Nodes
from muster_gateway.requests import RequestHead, body_position
from muster_gateway.rewriting import Found, Node, read_coordinators, write_coordinators
from muster_gateway.routes import Routes

_SEVERAL_SINCE = 4
_NO_LEADER = "The coordinator is not available."


@dataclass(frozen=True)
class Asked:
    """A request, with its keys apart by who serves them."""

    head: RequestHead
    key_type: int
    at_muster: tuple[str, ...]
    at_kafka: tuple[str, ...]


class Coordinators:
    def __init__(self, routes: Routes, nodes: Nodes, muster: Muster, park_s: float) -> None:
        """`park_s`: how long a group's request waits while no pod is known. Muster may be starting; librdkafka's
        AdminClient gives up asking after half a second, and then waits for the end of its own time-out."""
        self.group_apis = apis_of_groups() if routes else ()
        self._routes = routes
        self._nodes = nodes
        self._muster = muster
        self._park_s = park_s

    def read(self, head: RequestHead, frame: bytes) -> Asked:
        """Raises ClientError."""
        try:
            header = read_header(frame)
            request = header.api.decode_request(header, frame, "")
        except WireError as error:
            raise ClientError("malformed_request", f"FindCoordinator v{head.version}: {error}") from error
        assert isinstance(request, FindCoordinatorRequest)
        keys, is_groups = request.keys, request.key_type == KEY_TYPE_GROUP
        here = tuple([key for key in keys if is_groups and self._routes.is_at_muster(key)])
        there = tuple([key for key in keys if key not in here])
        return Asked(head, request.key_type, here, there)

    def for_kafka(self, asked: Asked, frame: bytes) -> bytes:
        """The request for Kafka's keys alone, without its length."""
        writer = Writer(True)  # it has several keys
        writer.int8(asked.key_type)
        writer.array(asked.at_kafka, writer.string)
        return frame[: body_position(frame, True)] + writer.done()

    async def of_muster(self, asked: Asked) -> bytes:
        """The answer's frame."""
        return self._answer(asked, 0, await self._at_muster(asked))

    async def of_both(self, asked: Asked, answer: bytes) -> bytes:
        """The answer's frame, from Kafka's."""
        throttle_ms, found = read_coordinators(asked.head.version, answer)
        shown = await self._shown(found)
        if asked.at_muster:
            shown += await self._at_muster(asked)
        return self._answer(asked, throttle_ms, shown)

    def _answer(self, asked: Asked, throttle_ms: int, found: tuple[Found, ...]) -> bytes:
        return write_coordinators(asked.head.version, asked.head.correlation_id, throttle_ms, found)

    async def _shown(self, found: tuple[Found, ...]) -> tuple[Found, ...]:
        """Kafka's coordinators with the gateway's addresses."""
        named = [Node(each.node_id, each.host, each.port) for each in found if not each.error_code]
        if not self._nodes.learn_brokers(named):
            await self._nodes.tell_brokers(named)
        return tuple([each if each.error_code else self._shown_broker(each) for each in found])

    def _shown_broker(self, found: Found) -> Found:
        address = self._nodes.broker_address(found.node_id)
        if address is None:
            return _unavailable(found.key)
        return Found(found.key, found.node_id, *address, found.error_code, found.error_message)

    async def _at_muster(self, asked: Asked) -> tuple[Found, ...]:
        await self._muster.pods_known(self._park_s)
        leaders = await asyncio.gather(*[self._muster.look_up(key) for key in asked.at_muster])
        several = asked.head.version >= _SEVERAL_SINCE
        pods: Mapping[int, object] = self._nodes.pods
        found = []
        for key, leader in zip(asked.at_muster, leaders, strict=True):
            # Any pod's port will do: the request goes to the leader of the group's partition, when there is one again.
            pod = leader if leader in pods else min(pods, default=None)
            node = self._nodes.shown_pod(pod) if pod is not None else None
            name = key if several else ""
            message = "" if several else "NONE"
            found.append(
                Found(name, node.node_id, node.host, node.port, 0, message) if node is not None else _unavailable(name)
            )
        return tuple(found)


def _unavailable(key: str) -> Found:
    return Found(key, -1, "", -1, int(ErrorCode.COORDINATOR_NOT_AVAILABLE), _NO_LEADER)


def apis_of_groups() -> tuple[tuple[int, int, int], ...]:
    """(key, lowest, highest version) of what Muster serves, of the APIs that go to it. Those that it does not have are
    answered by the gateway, versions that it lacks are made of earlier ones."""
    return tuple(
        (rule.key, APIS[rule.key].min_version, rule.max_version if rule.key in OF_PODS else APIS[rule.key].max_version)
        for rule in apis.RULES.values()
        if rule.treatment in (Treatment.GROUP, Treatment.LIST_GROUPS) and rule.key in APIS
    )
