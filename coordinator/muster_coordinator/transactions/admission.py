"""Requests that are wrong in themselves: refused in any state of the shard, loading included, as in Kafka."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import transactions as m
from muster_coordinator.transactions.config import TransactionConfig

_INVALID = ErrorCode.INVALID_REQUEST


def refuse(request: object, config: TransactionConfig) -> object | None:
    """Returns the error response to `request`; None if it has no error in itself."""
    if isinstance(request, m.InitProducerIdRequest):
        return _refuse_init(request, config)
    if isinstance(request, m.AddPartitionsRequest) and not request.transactional_id:
        return m.AddPartitionsResponse("", every_partition(request.topics, _INVALID))
    if isinstance(request, m.AddOffsetsToTxnRequest) and not request.transactional_id:
        return m.AddOffsetsToTxnResponse(_INVALID)
    if isinstance(request, m.EndTxnRequest) and not request.transactional_id:
        return m.EndTxnResponse(_INVALID)
    if isinstance(request, m.DescribeTransactionRequest) and not request.transactional_id:
        return m.DescribedTransaction(_INVALID, "")
    return None


def _refuse_init(request: m.InitProducerIdRequest, config: TransactionConfig) -> m.InitProducerIdResponse | None:
    if (request.producer_id == -1) is not (request.producer_epoch == -1):
        return m.InitProducerIdResponse(_INVALID)
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return m.InitProducerIdResponse(_INVALID)
    if not 0 < request.transaction_timeout_ms <= config.max_timeout_ms:
        return m.InitProducerIdResponse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return None


def every_partition(topics: m.TopicPartitions, code: ErrorCode) -> m.TopicErrors:
    """`code` for each partition, once."""
    merged: dict[str, dict[int, None]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return tuple([(topic, tuple([(index, int(code)) for index in indexes])) for topic, indexes in merged.items()])
