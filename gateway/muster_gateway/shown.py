"""The answers that clients are shown in place of those of brokers and pods that name nodes, versions or groups.

Frames are without their lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import configs as f
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
    read_config_resources,
    refuse_to_list_groups,
    with_config_resources,
    write_api_versions,
)
from muster_gateway.routes import Routes

_GROUP = f.ConfigResourceType.GROUP


class _NotKnownError(Exception):
    """The side that serves a group in a list is not known."""


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

    def has_configs(self, frame: bytes) -> bool:
        """True if an answer to ListConfigResources lists what there is. Raises UpstreamError."""
        return read_config_resources(frame).error_code == 0

    def configs_of_both(self, kafka: bytes, muster: bytes) -> bytes:
        """The answer to ListConfigResources from that of a broker and that of a pod: each group is listed by who serves
        it. Raises UpstreamError."""
        of_kafka, of_muster = read_config_resources(kafka), read_config_resources(muster)
        if of_muster.error_code:
            return muster
        groups = {each.name for each in (*of_kafka.resources, *of_muster.resources) if each.resource_type == _GROUP}
        if any(self._is_unknown(group) for group in groups):
            code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return with_config_resources(kafka, f.ListConfigResourcesResponse(code))
        at_muster = self._routes.is_at_muster
        both = [each for each in of_kafka.resources if each.resource_type != _GROUP or not at_muster(each.name)]
        both += [each for each in of_muster.resources if each.resource_type == _GROUP and at_muster(each.name)]
        return with_config_resources(kafka, f.ListConfigResourcesResponse(0, tuple(both)))

    def _is_unknown(self, group: str) -> bool:
        """True if it is not known which side has the group now."""
        return self._moves is not None and not self._routes.is_served(group) and self._moves.is_unknown(group)

    def _listed(self, head: RequestHead, frame: bytes, left_out: Callable[[str], bool]) -> bytes:
        """Without a lease a group may be of either side, and a list would have it twice, or not at all."""
        if self._moves is None:
            return listed_groups_without(head.version, frame, left_out)

        def is_left_out(group: str) -> bool:
            if self._is_unknown(group):
                raise _NotKnownError
            return left_out(group)

        try:
            return listed_groups_without(head.version, frame, is_left_out)
        except _NotKnownError:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return refuse_to_list_groups(head.version, head.correlation_id, code)
