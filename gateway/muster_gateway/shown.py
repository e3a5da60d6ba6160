"""What clients are shown in place of the answers of brokers and pods that name nodes, versions or groups.

Frames are without their lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from muster_coordinator.errors import ErrorCode
from muster_gateway.coordinators import Coordinators
from muster_gateway.moves import Moves
from muster_gateway.nodes import Nodes
from muster_gateway.requests import RequestHead
from muster_gateway.rewriting import (
    Announced,
    BrokersAnswer,
    listed_groups_without,
    read_api_versions,
    read_brokers,
    refuse_to_list_groups,
    write_api_versions,
)
from muster_gateway.routes import Routes


class _NotKnownError(Exception):
    """Which side serves a group that is listed."""


class Shown:
    """`moves`: None if no group is movable."""

    def __init__(self, routes: Routes, moves: Moves | None, nodes: Nodes, coordinators: Coordinators) -> None:
        self._routes = routes
        self._moves = moves
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
        return self._listed(head, frame, self._routes.is_at_muster)

    def groups_of_muster(self, head: RequestHead, frame: bytes) -> bytes:
        """A pod that mirrors Kafka shows Kafka's groups, too. Raises UpstreamError."""
        return self._listed(head, frame, lambda group: not self._routes.is_at_muster(group))

    def _listed(self, head: RequestHead, frame: bytes, left_out: Callable[[str], bool]) -> bytes:
        """Without a lease a group may be of either side, and a list would have it twice, or not at all."""
        moves = self._moves
        if moves is None:
            return listed_groups_without(head.version, frame, left_out)

        def is_left_out(group: str) -> bool:
            if not self._routes.is_served(group) and moves.is_unknown(group):
                raise _NotKnownError
            return left_out(group)

        try:
            return listed_groups_without(head.version, frame, is_left_out)
        except _NotKnownError:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return refuse_to_list_groups(head.version, head.correlation_id, code)
