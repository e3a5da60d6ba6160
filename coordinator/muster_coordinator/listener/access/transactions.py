"""Guards of the requests of transactions (KafkaApis).

AddPartitionsToTxn from version 4 on comes from other pods, like WriteTxnMarkers, and needs the right to act for the
cluster.
"""

from __future__ import annotations

from typing import Any

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Rights, hand_on, split
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import transactions as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.security.acls import Operation

_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_BY_PODS_SINCE = 4


def own_transaction(request: Any, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """EndTxn."""
    if rights.transactional_id(Operation.WRITE, request.transactional_id):
        handler(request, exchange)
    else:
        exchange.answer(refusal(request, _REFUSED))


def init_producer_id(
    request: m.InitProducerIdRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    if request.transactional_id is not None:
        own_transaction(request, exchange, rights, handler)
    elif rights.cluster(Operation.IDEMPOTENT_WRITE):
        handler(request, exchange)
    else:
        exchange.answer(refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def add_offsets(request: m.AddOffsetsToTxnRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    if rights.transactional_id(Operation.WRITE, request.transactional_id) and not rights.group(
        Operation.READ, request.group_id
    ):
        exchange.answer(refusal(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    else:
        own_transaction(request, exchange, rights, handler)


def add_partitions(
    request: m.AddPartitionsToTxnRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    """The coordinator refuses every topic that a client can name, so nothing is said here of rights to topics."""
    if exchange.version >= _BY_PODS_SINCE:
        if rights.cluster(Operation.CLUSTER_ACTION):
            handler(request, exchange)
        else:
            exchange.answer(m.AddPartitionsToTxnResponse((), int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
    elif all(rights.transactional_id(Operation.WRITE, each.transactional_id) for each in request.transactions):
        handler(request, exchange)
    else:
        refused: Any = tuple([refusal(each, _REFUSED) for each in request.transactions])
        exchange.answer(m.AddPartitionsToTxnResponse(refused))


def describe_transactions(
    request: m.DescribeTransactionsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    allowed, refused = split(request.transactional_ids, lambda name: rights.transactional_id(Operation.DESCRIBE, name))

    def change(response: m.DescribeTransactionsResponse) -> m.DescribeTransactionsResponse:
        errors = [m.DescribedTransaction(int(_REFUSED), name) for name in refused]
        return m.DescribeTransactionsResponse((*response.transactions, *errors))

    hand_on(m.DescribeTransactionsRequest(allowed), exchange, handler, change)


def list_transactions(
    request: m.ListTransactionsRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    def change(response: m.ListTransactionsResponse) -> m.ListTransactionsResponse:
        sees = rights.unasked
        may_see = [t for t in response.transactions if sees.transactional_id(Operation.DESCRIBE, t.transactional_id)]
        return msgspec.structs.replace(response, transactions=tuple(may_see))

    hand_on(request, exchange, handler, change)
