"""Requests that the shards answer: to the shard of the group, or spread over several shards and joined again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather, ask_distinct
from muster_coordinator.listener.handlers.offset_deletion import OffsetDeletion, is_large
from muster_coordinator.listener.handlers.routes import ShardRoutes, SubmitEarly, is_loading
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard


class GroupHandlers(ShardRoutes):
    def __init__(self, view: ClusterView, shards: Mapping[int, Shard], submit_early: SubmitEarly) -> None:
        super().__init__("group_id", view.partition_of, view, shards, submit_early)
        self._view = view
        self._to_list: dict[m.ListGroupsRequest, list[Answer]] = {}
        self._is_listing = False

    def offset_fetch(self, request: w.OffsetFetchRequests, answer: Answer) -> None:
        ask_distinct(request.groups, self.route, lambda parts: answer.answer(w.OffsetFetchResponses(parts)))

    def describe_groups(self, request: w.DescribeGroupsRequest, answer: Answer) -> None:
        operations = w.ALL_GROUP_OPERATIONS if request.include_authorized_operations else w.OPERATIONS_NOT_REQUESTED
        ask_distinct(
            request.groups, self.route, lambda parts: answer.answer(w.DescribeGroupsResponse(parts, operations))
        )

    def describe_consumer_groups(self, request: c.ConsumerGroupDescribeRequest, answer: Answer) -> None:
        asked = request.include_authorized_operations
        operations = w.ALL_GROUP_OPERATIONS if asked else w.OPERATIONS_NOT_REQUESTED

        def combine(parts: Sequence[c.DescribedConsumerGroup]) -> None:
            groups = tuple([c.without_operations(part) if part.error_code else part for part in parts])
            answer.answer(c.ConsumerGroupDescribeResponse(groups, operations))

        self._spread(request.groups, Gather(len(request.groups), combine))

    def delete_groups(self, request: w.DeleteGroupsRequest, answer: Answer) -> None:
        """A name that is listed twice is answered once (reference, section 11)."""
        requests = [m.DeleteGroupRequest(group_id) for group_id in dict.fromkeys(request.group_ids)]
        self._spread(requests, Gather(len(requests), lambda parts: answer.answer(w.DeleteGroupsResponse(tuple(parts)))))

    def offset_delete(self, request: m.OffsetDeleteRequest, answer: Answer) -> None:
        if is_large(request):
            OffsetDeletion(request, self.route, answer).go_on()
        else:
            self.route(request, answer)

    def list_groups(self, request: m.ListGroupsRequest, answer: Answer) -> None:
        """One listing at a time, for all that ask for the same: it looks at every group. Not the one that is under way,
        which may have passed a group that this client has just made."""
        self._to_list.setdefault(request, []).append(answer)
        if not self._is_listing:
            self._list_next()

    def _list_next(self) -> None:
        self._is_listing = bool(self._to_list)
        if not self._to_list:
            return
        request = next(iter(self._to_list))
        answers = self._to_list.pop(request)

        def combine(parts: Sequence[m.ListGroupsResponse]) -> None:
            code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if is_loading(parts) else 0
            groups = () if code else tuple([group for part in parts for group in part.groups])
            asyncio.get_running_loop().call_soon(self._list_next)
            for each in answers:
                each.answer(m.ListGroupsResponse(code, groups))

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

        def ask(index: int) -> None:
            marker, topic, partition = places[index]
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

        gather.spread(ask, SLICE_ENTRIES)


def _marker_error(code: int) -> int:
    retried = (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in retried else code
