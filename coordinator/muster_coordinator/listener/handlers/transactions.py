"""Requests that the transaction shards answer: to the shard of the transactional id, or spread over several shards and
joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather
from muster_coordinator.listener.handlers.routes import ImageView, ShardRoutes, SubmitEarly, is_loading
from muster_coordinator.requests import transactions as m
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState
from muster_coordinator.transactions.description import unknown_states


class TransactionView(ImageView, Protocol):
    """Where transactional ids live."""

    @property
    def transaction_partitions(self) -> range:
        """Our numbers of the partitions of the transaction topic; empty while they are not known."""
        ...

    def partition_of_transactional_id(self, transactional_id: str) -> int | None:
        """Returns our number of its partition; None while the partitions are not known."""
        ...


class TransactionHandlers(ShardRoutes):
    def __init__(self, view: TransactionView, shards: Mapping[int, Shard], submit_early: SubmitEarly) -> None:
        super().__init__("transactional_id", view.partition_of_transactional_id, view, shards, submit_early)
        self._view = view

    def init_producer_id(self, request: m.InitProducerIdRequest, answer: Answer) -> None:
        """A producer without a transactional id gets a producer id of any partition that this pod leads."""
        if request.transactional_id is not None:
            self.route(request, answer)
            return
        current = self._view.transaction_partitions
        here = (s for number, s in self._shards.items() if s.state is ShardState.ACTIVE and number in current)
        shard = next(here, None)
        if shard is None:
            answer.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            shard.submit(request, answer)

    def add_partitions(self, request: m.AddPartitionsToTxnRequest, answer: Answer) -> None:
        def combine(parts: Sequence[m.AddPartitionsResponse]) -> None:
            answer.answer(m.AddPartitionsToTxnResponse(tuple(parts)))

        self._spread(request.transactions, Gather(len(request.transactions), combine))

    def describe_transactions(self, request: m.DescribeTransactionsRequest, answer: Answer) -> None:
        def combine(parts: Sequence[m.DescribedTransaction]) -> None:
            answer.answer(m.DescribeTransactionsResponse(tuple(parts)))

        requests = [m.DescribeTransactionRequest(transactional_id) for transactional_id in request.transactional_ids]
        self._spread(requests, Gather(len(requests), combine))

    def list_transactions(self, request: m.ListTransactionsRequest, answer: Answer) -> None:
        def combine(parts: Sequence[m.ListTransactionsResponse]) -> None:
            if is_loading(parts):
                answer.answer(m.ListTransactionsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                return
            found = tuple(transaction for part in parts for transaction in part.transactions)
            answer.answer(m.ListTransactionsResponse(ErrorCode.NONE, unknown_states(request.states), found))

        self._ask_all(request, self._view.transaction_partitions, combine)
