"""What clients are shown in place of the answers of brokers and pods that name nodes, versions or groups.

Frames are without their lengths.
"""

from __future__ import annotations

from collections.abc import Coroutine

from muster_gateway.coordinators import Coordinators
from muster_gateway.nodes import Nodes
from muster_gateway.requests import RequestHead
from muster_gateway.rewriting import (
    Announced,
    BrokersAnswer,
    listed_groups_without,
    read_api_versions,
    read_brokers,
    write_api_versions,
)
from muster_gateway.routes import Routes


class Shown:
    def __init__(self, routes: Routes, nodes: Nodes, coordinators: Coordinators) -> None:
        self._routes = routes
        self._nodes = nodes
        self._coordinators = coordinators

    def brokers(self, head: RequestHead, frame: bytes) -> bytes | Coroutine[object, object, bytes]:
        """An answer that names brokers, with the gateway's addresses; later, while one of them has none yet. Raises
        UpstreamError."""
        answer = read_brokers(head.rule.key, head.version, frame)
        if self._nodes.learn_brokers(answer.brokers):
            return answer.with_brokers(self._nodes.shown(answer.brokers))
        return self._new_brokers(answer)

    async def _new_brokers(self, answer: BrokersAnswer) -> bytes:
        await self._nodes.tell_brokers(answer.brokers)
        return answer.with_brokers(self._nodes.shown(answer.brokers))

    def versions_of_broker(self, head: RequestHead, frame: bytes) -> bytes:
        """Raises UpstreamError."""
        return self.versions(head, read_api_versions(head.version, frame))

    def versions(self, head: RequestHead, announced: Announced) -> bytes:
        shown = announced.through_gateway(self._coordinators.group_apis)
        return write_api_versions(head.version, head.correlation_id, shown)

    def groups_of_kafka(self, head: RequestHead, frame: bytes) -> bytes:
        """Those that are served there. Raises UpstreamError."""
        return listed_groups_without(head.version, frame, self._routes.served_here)

    def groups_of_muster(self, head: RequestHead, frame: bytes) -> bytes:
        """A pod that mirrors Kafka shows Kafka's groups, too. Raises UpstreamError."""
        return listed_groups_without(head.version, frame, lambda group: not self._routes.served_here(group))
