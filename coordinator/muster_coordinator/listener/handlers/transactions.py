"""Requests that the transaction shards answer: to the shard of the transactional id, or spread over several shards and
joined again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import structlog
from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.regexes import error_of, resolve
from muster_coordinator.listener.gather import Gather
from muster_coordinator.listener.handlers.routes import ImageView, ShardRoutes, SubmitEarly, is_loading
from muster_coordinator.requests import transactions as m
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState
from muster_coordinator.transactions.description import unknown_states

logger = structlog.get_logger(__name__)


class TransactionView(ImageView, Protocol):
    """The view of the cluster that tells where transactional ids live."""

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
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="patterns")

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
            listed = m.ListTransactionsResponse(ErrorCode.NONE, unknown_states(request.states), found)
            if request.pattern:
                self._match(request.pattern, listed, answer)
            else:
                answer.answer(listed)

        self._ask_all(replace(request, pattern=None), self._view.transaction_partitions, combine)

    def _match(self, pattern: str, listed: m.ListTransactionsResponse, answer: Answer) -> None:
        """Matches beside the event loop: a client makes up the expression, and there may be many names."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, _matching, pattern, listed)

        def done(finished: asyncio.Future[m.ListTransactionsResponse]) -> None:
            if finished.cancelled():
                return
            if finished.exception() is not None:
                logger.error("pattern_not_matched", exc_info=finished.exception())
                answer.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                answer.answer(finished.result())

        work.add_done_callback(done)


def _matching(pattern: str, listed: m.ListTransactionsResponse) -> m.ListTransactionsResponse:
    """Those whose whole name the RE2 expression matches."""
    if error_of(pattern) is not None:
        return m.ListTransactionsResponse(ErrorCode.INVALID_REGULAR_EXPRESSION)
    names = frozenset(resolve((pattern,), [each.transactional_id for each in listed.transactions])[pattern])
    kept = [each for each in listed.transactions if each.transactional_id in names]
    return replace(listed, transactions=tuple(kept))
