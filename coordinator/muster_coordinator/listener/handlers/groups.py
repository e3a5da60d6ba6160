"""Requests that the shards answer: to the shard of the group, or spread over several shards and joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather
from muster_coordinator.listener.handlers.routes import ShardRoutes, SubmitEarly, is_loading
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard


class GroupHandlers(ShardRoutes):
    def __init__(self, view: ClusterView, shards: Mapping[int, Shard], submit_early: SubmitEarly) -> None:
        super().__init__("group_id", view.partition_of, view, shards, submit_early)
        self._view = view

    def offset_fetch(self, request: w.OffsetFetchRequests, answer: Answer) -> None:
        self._spread(
            request.groups,
            Gather(len(request.groups), lambda parts: answer.answer(w.OffsetFetchResponses(tuple(parts)))),
        )

    def describe_groups(self, request: w.DescribeGroupsRequest, answer: Answer) -> None:
        asked = request.include_authorized_operations
        operations = w.ALL_GROUP_OPERATIONS if asked else w.OPERATIONS_NOT_REQUESTED
        self._spread(
            request.groups,
            Gather(
                len(request.groups), lambda parts: answer.answer(w.DescribeGroupsResponse(tuple(parts), operations))
            ),
        )

    def delete_groups(self, request: w.DeleteGroupsRequest, answer: Answer) -> None:
        """A name that is listed twice is answered once (reference, section 11)."""
        requests = [m.DeleteGroupRequest(group_id) for group_id in dict.fromkeys(request.group_ids)]
        self._spread(requests, Gather(len(requests), lambda parts: answer.answer(w.DeleteGroupsResponse(tuple(parts)))))

    def list_groups(self, request: m.ListGroupsRequest, answer: Answer) -> None:
        def combine(parts: Sequence[m.ListGroupsResponse]) -> None:
            if is_loading(parts):
                answer.answer(m.ListGroupsResponse(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
                return
            answer.answer(m.ListGroupsResponse(0, tuple(group for part in parts for group in part.groups)))

        self._ask_all(request, self._view.offsets_partitions, combine)

    def write_txn_markers(self, request: w.WriteTxnMarkersRequest, answer: Answer) -> None:
        """Inter-broker: a transaction coordinator ends transactions on offsets partitions that this pod leads.

        Coordinator errors are turned into NOT_LEADER_OR_FOLLOWER, which that coordinator retries
        (GroupCoordinatorService).
        """
        places: list[tuple[w.TransactionMarker, str, int]] = [
            (marker, topic, partition)
            for marker in request.markers
            for topic, partitions in marker.topics
            for partition in partitions
        ]

        def combine(parts: Sequence[m.WriteTxnMarkerResponse]) -> None:
            codes = {
                (id(marker), topic, partition): _marker_error(part.error_code)
                for (marker, topic, partition), part in zip(places, parts, strict=True)
            }
            answer.answer(
                w.WriteTxnMarkersResponse(
                    tuple(
                        (
                            marker.producer_id,
                            tuple(
                                (topic, tuple((p, codes[id(marker), topic, p]) for p in partitions))
                                for topic, partitions in marker.topics
                            ),
                        )
                        for marker in request.markers
                    )
                )
            )

        gather = Gather(len(places), combine)
        for index, (marker, topic, partition) in enumerate(places):
            part = gather.part(
                index,
                one := m.WriteTxnMarkerRequest(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.committed,
                    marker.coordinator_epoch,
                    marker.transaction_version,
                ),
            )
            shard = self._shards.get(self._view.own_index(partition)) if topic == OFFSETS.name else None
            if topic != OFFSETS.name or not self._view.has(topic, partition):
                part.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif shard is None:
                part.refuse(ErrorCode.NOT_COORDINATOR)
            else:
                shard.submit(one, part)


def _marker_error(code: int) -> int:
    retried = (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in retried else code
