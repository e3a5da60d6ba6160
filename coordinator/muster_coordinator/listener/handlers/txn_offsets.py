"""TxnOffsetCommit: the transaction coordinator is asked before the group's shard gets the commit (KIP-890).

From version 5 on the offsets partition of the group is added to the transaction, since the client does not do that by
itself. For earlier versions the coordinator says whether it is part of the transaction. So a commit that arrives after
the end of its transaction is refused, and cannot become part of the next one, which may have the same epoch.

Source: CoordinatorPartitionWriter#maybeStartTransactionVerification, AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.handlers.groups import GroupHandlers
from muster_coordinator.listener.handlers.transactions import TransactionHandlers
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.requests.groups import TxnOffsetCommitRequest
from muster_coordinator.requests.transactions import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.wire import k24_add_partitions_to_txn as k24

_ADDS_SINCE = 5  # version of TxnOffsetCommit
_ABORTABLE_SINCE = 4  # version of TxnOffsetCommit that knows TRANSACTION_ABORTABLE
_VERSION = k24.API.max_version
_NO_NEWS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Barrier(Protocol):
    """The wait for markers of a cluster whose markers come from an upstream: `pod.mirroring.barrier`."""

    def after_markers(self, partition: int, go_on: Callable[[], None], refuse: Callable[[ErrorCode], None]) -> None:
        """Call `go_on` when all markers are here that were written before now, or `refuse`. `partition`: the number
        that clients know."""
        ...


class TxnOffsetHandlers:
    def __init__(
        self,
        view: ClusterView,
        shards: Mapping[int, Shard],
        groups: GroupHandlers,
        transactions: TransactionHandlers,
        connections: PodConnections,
        barrier: Barrier | None,
    ) -> None:
        """`barrier`: where Kafka writes the markers; None: where they come to the pod that leads."""
        self._barrier = barrier
        self._view = view
        self._shards = shards
        self._groups = groups
        self._transactions = transactions
        self._connections = connections

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, answer: Answer) -> None:
        """Without transaction partitions the cluster has no coordinator to ask: one elsewhere writes the markers. A
        commit for a partition that no shard leads here is refused, though one may be about to: those that wait for an
        election run in it at once, without the questions of this handler."""
        place = self._view.partition_of_group(request.group_id)
        asks_nobody = self._barrier is None and not self._view.transaction_partitions
        if place is None or not request.group_id or asks_nobody:
            self._groups.route(request, answer)
            return
        number = self._view.own_index(place[1])
        shard = self._shards.get(number)
        if shard is None:
            answer.refuse(ErrorCode.NOT_COORDINATOR)
            return
        if self._barrier is not None:
            self._barrier.after_markers(place[1], partial(self._go_on, number, request, answer), answer.refuse)
            return
        question = AddPartitionsRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            ((OFFSETS.name, (place[1],)),),
            _VERSION,
            verify_only=request.api_version < _ADDS_SINCE,
        )
        commit = replace(request, asked_at=shard.writer.end_offset)
        self._ask(question, _Asked(self, number, shard, commit, answer))

    def _go_on(self, number: int, commit: TxnOffsetCommitRequest, answer: Answer) -> None:
        shard = self._shards.get(number)
        if shard is None:
            answer.refuse(ErrorCode.NOT_COORDINATOR)
        else:
            shard.submit(commit, answer)

    def _ask(self, question: AddPartitionsRequest, asked: _Asked) -> None:
        partition = self._view.partition_of_transactional_id(question.transactional_id)
        leader = self._view.leader_of(partition) if partition is not None else None
        if partition in self._shards or (leader is not None and leader.pod == self._view.pod):
            self._transactions.route(question, asked)
        elif leader is None:
            asked.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            body = k24.encode_request(_VERSION, AddPartitionsToTxnRequest((question,)))
            self._connections.ask(leader.pod, k24.API, _VERSION, body, k24.decode_response, asked.answered_there)

    def told(self, asked: _Asked, code: int) -> None:
        """The coordinator has answered. The commit goes to the shard of then: what another leadership of the partition
        would take it for has not been asked."""
        if code:
            asked.commit_answer.refuse(_refusal(code, asked.commit.api_version))
        elif self._shards.get(asked.number) is not asked.shard:
            asked.commit_answer.refuse(ErrorCode.NOT_COORDINATOR)
        else:
            asked.shard.submit(asked.commit, asked.commit_answer)


class _Asked:
    """`shard.ports.Answer` of the coordinator."""

    def __init__(
        self,
        handlers: TxnOffsetHandlers,
        number: int,
        shard: Shard,
        commit: TxnOffsetCommitRequest,
        commit_answer: Answer,
    ) -> None:
        self._told = partial(handlers.told, self)
        self.number, self.shard = number, shard
        self.commit, self.commit_answer = commit, commit_answer

    def answer(self, response: AddPartitionsResponse) -> None:
        codes = [code for _, partitions in response.topics for _, code in partitions]
        self._told(codes[0] if len(codes) == 1 else ErrorCode.UNKNOWN_SERVER_ERROR)

    def refuse(self, code: ErrorCode) -> None:
        self._told(code)

    def answered_there(self, response: AddPartitionsToTxnResponse | None) -> None:
        """The coordinator is in another pod. None: that gave no answer."""
        if response is None:
            self.refuse(ErrorCode.NETWORK_EXCEPTION)
        elif len(response.transactions) == 1:
            self.answer(response.transactions[0])
        else:
            self.refuse(ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR))


def _refusal(code: int, version: int) -> ErrorCode:
    """The code for the client (GroupCoordinatorService#handleOperationException, AddPartitionsToTxnManager). While the
    transaction coordinator cannot be asked, a client asks again without looking for another group coordinator."""
    if code in _NO_NEWS:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode(code)
