"""Requests that the transaction shards answer: to the shard of the transactional id, or spread over several shards and
joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather
from muster_coordinator.listener.handlers.groups import SubmitEarly
from muster_coordinator.requests import transactions as m
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState
from muster_coordinator.transactions.description import unknown_states


class TransactionView(Protocol):
    """Where transactional ids live."""

    @property
    def transaction_partitions(self) -> range:
        """Our numbers of the partitions of the transaction topic; empty while they are not known."""
        ...

    def partition_of_transactional_id(self, transactional_id: str) -> int | None:
        """Returns our number of its partition; None while the partitions are not known."""
        ...


class TransactionHandlers:
    def __init__(self, view: TransactionView, shards: Mapping[int, Shard], submit_early: SubmitEarly) -> None:
        self._view = view
        self._shards = shards
        self._submit_early = submit_early

    def route(self, request: Any, answer: Answer) -> None:
        """Hand the request to the shard of its transactional id. Refuse it if this pod neither leads the partition nor
        is about to."""
        partition = self._view.partition_of_transactional_id(request.transactional_id)
        shard = self._shards.get(partition) if partition is not None else None
        if shard is not None:
            shard.submit(request, answer)
        elif partition is None:
            answer.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._submit_early(partition, request, answer)

    def init_producer_id(self, request: m.InitProducerIdRequest, answer: Answer) -> None:
        """A producer without a transactional id gets a producer id of any partition that this pod leads."""
        if request.transactional_id is not None:
            self.route(request, answer)
            return
        shard = next((shard for shard in self._here() if shard.state is ShardState.ACTIVE), None)
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
        """Every active shard of this pod; what is loading makes the whole answer an error, as in Kafka."""
        shards = [shard for shard in self._here() if shard.state in (ShardState.ACTIVE, ShardState.LOADING)]

        def combine(parts: Sequence[m.ListTransactionsResponse]) -> None:
            if any(part.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for part in parts):
                answer.answer(m.ListTransactionsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                return
            found = tuple(transaction for part in parts for transaction in part.transactions)
            answer.answer(m.ListTransactionsResponse(ErrorCode.NONE, unknown_states(request.states), found))

        gather = Gather(len(shards), combine)
        for index, shard in enumerate(shards):
            shard.submit(request, gather.part(index, request))

    def _here(self) -> list[Shard]:
        """The shards of this pod, without those of partitions that a re-shard has replaced."""
        current = self._view.transaction_partitions
        return [shard for partition, shard in self._shards.items() if partition in current]

    def _spread(self, requests: Sequence[Any], gather: Gather) -> None:
        for index, request in enumerate(requests):
            self.route(request, gather.part(index, request))
