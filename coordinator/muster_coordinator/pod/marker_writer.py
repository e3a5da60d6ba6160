"""Writes the markers of transactions: through the shard here that leads a group's partition, or the pod that does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.marker_hold import MarkerHold
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.requests.cluster import TransactionMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from muster_coordinator.requests.groups import WriteTxnMarkerRequest, WriteTxnMarkerResponse
from muster_coordinator.requests.transactions import DescribeTransactionRequest, MarkersToWrite, MarkersWritten
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState
from muster_coordinator.wire import k27_write_txn_markers as k27

logger = structlog.get_logger(__name__)

_Resolved = Callable[[int], None]
_VERSION = k27.API.max_version
NOBODY = "muster-backup"
"""A transactional id to ask for: any read is answered when what was queued before it is committed."""


class MarkerWriter:
    """Writes the markers of all transaction partitions of a pod. `hold`: keeps markers back while a backup cuts the
    logs, and what came of earlier ones, too: that completes transactions.
    """

    def __init__(self, view: ClusterView, shards: Mapping[int, Shard], connections: PodConnections) -> None:
        self.hold = MarkerHold()
        self._view = view
        self._shards = shards
        self._connections = connections

    def of(self, number: int) -> PartitionMarkers:
        """Returns the writer of one transaction partition."""
        return PartitionMarkers(self, number)

    def write(self, number: int, request: MarkersToWrite) -> None:
        """The decision is committed."""
        shard = self._shards.get(number)
        if shard is None:
            return  # its leadership has ended, and the next leader asks again
        self.hold.run(partial(self._write, number, shard, request))

    def _write(self, number: int, shard: Shard, request: MarkersToWrite) -> None:
        """A leadership that began during a hold has asked for markers of its own."""
        if self._shards.get(number) is not shard:
            return
        for _, partitions in request.topics:
            for each in partitions:
                self._write_one(shard, request, each, partial(self._resolve, shard, request, each))

    def refused(self, number: int, request: MarkersToWrite) -> None:
        """The decision was not committed in time, or the leadership has ended. No marker has left."""
        shard = self._shards.get(number)
        if shard is None:
            return
        for _, partitions in request.topics:
            for each in partitions:
                self._resolve(shard, request, each, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _resolve(self, shard: Shard, request: MarkersToWrite, partition: int, code: int) -> None:
        self.hold.run(partial(_tell, shard, request, partition, code))

    async def settle(self, for_s: float) -> bool:
        """Wait until all that transaction partitions here have been told is in their logs and committed. After that no
        transaction is completed while the hold lasts. Returns False: it took longer than `for_s`, or one has ended."""
        loop = asyncio.get_running_loop()
        waits: list[asyncio.Future[bool]] = []
        for number, shard in self._shards.items():
            if number in TRANSACTIONS.numbers and shard.state is ShardState.ACTIVE:
                waits.append(loop.create_future())
                shard.submit(DescribeTransactionRequest(NOBODY), _Settled(waits[-1]))
        try:
            async with asyncio.timeout(for_s):
                return all(await asyncio.gather(*waits))
        except TimeoutError:
            return False

    def _write_one(self, shard: Shard, request: MarkersToWrite, partition: int, resolved: _Resolved) -> None:
        """The coordinator epoch is that of the shard that has decided: groups refuse markers of an earlier one."""
        number = self._view.own_index(partition)
        here, leader = self._shards.get(number), self._view.leader_of(number)
        if here is not None:
            marker = WriteTxnMarkerRequest(
                request.producer_id, request.producer_epoch, request.committed, shard.epoch, request.client_version
            )
            here.submit(marker, _Local(resolved))
        elif leader is None:
            resolved(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            marker_there = TransactionMarker(
                request.producer_id,
                request.producer_epoch,
                request.committed,
                shard.epoch,
                ((OFFSETS.name, (partition,)),),
                request.client_version,
            )
            body = k27.encode_request(_VERSION, WriteTxnMarkersRequest((marker_there,)))
            told = partial(_told, leader.pod, request.producer_id, resolved)
            self._connections.ask(leader.pod, k27.API, _VERSION, body, k27.decode_response, told)


def _told(pod: str, producer_id: int, resolved: _Resolved, answer: WriteTxnMarkersResponse | None) -> None:
    if answer is None:
        resolved(ErrorCode.NETWORK_EXCEPTION)
        return
    codes = [code for _, topics in answer.markers for _, partitions in topics for _, code in partitions]
    code = codes[0] if len(codes) == 1 else ErrorCode.UNKNOWN_SERVER_ERROR
    if code:
        logger.warning("marker_refused", pod=pod, producer_id=producer_id, code=ErrorCode(code).name)
    resolved(code)


def _tell(shard: Shard, request: MarkersToWrite, partition: int, code: int) -> None:
    what = ((OFFSETS.name, ((partition, int(code)),)),)
    shard.notify(MarkersWritten(request.transactional_id, request.prepared_at, what))


class PartitionMarkers:
    """Implements `transactions.ports.MarkerWriter` for one transaction partition."""

    def __init__(self, writer: MarkerWriter, number: int) -> None:
        self._writer, self._number = writer, number

    def attempt(self, request: MarkersToWrite) -> Answer:
        return _Attempt(self._writer, self._number, request)


class _Attempt:
    """`shard.ports.Answer`: the answer is the leave to write the markers."""

    def __init__(self, writer: MarkerWriter, number: int, request: MarkersToWrite) -> None:
        self._writer, self._number, self._request = writer, number, request

    def answer(self, response: object) -> None:
        self._writer.write(self._number, self._request)

    def refuse(self, code: ErrorCode) -> None:
        self._writer.refused(self._number, self._request)


class _Local:
    """`shard.ports.Answer` of a marker for a shard of this pod."""

    def __init__(self, resolved: _Resolved) -> None:
        self._resolved = resolved

    def answer(self, response: WriteTxnMarkerResponse) -> None:
        self._resolved(response.error_code)

    def refuse(self, code: ErrorCode) -> None:
        self._resolved(code)


class _Settled:
    """`shard.ports.Answer` of a read that nobody needs: that it is answered is what counts."""

    def __init__(self, done: asyncio.Future[bool]) -> None:
        self._done = done

    def answer(self, response: object) -> None:
        self._set(is_settled=True)

    def refuse(self, code: ErrorCode) -> None:
        self._set(is_settled=False)

    def _set(self, *, is_settled: bool) -> None:
        if not self._done.done():  # nobody waits any more
            self._done.set_result(is_settled)
