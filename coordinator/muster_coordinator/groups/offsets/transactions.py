"""WriteTxnMarkers, one marker for one offsets partition (Kafka: the group side of a transaction; reference, section
4.9), and DescribeProducers.

The marker is a control record that the shard appends; its replay moves the producer's pending offsets.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.requests.groups import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    OpenProducer,
    WriteTxnMarkerRequest,
    WriteTxnMarkerResponse,
)
from muster_coordinator.state_machine import Result, Token, Transaction

_UNKNOWN_VERSION = -1  # Kafka: TransactionVersion.TV_UNKNOWN, which a marker must not have
_EPOCH_PER_TRANSACTION_SINCE = 2  # transaction version, KIP-890


def write_txn_marker(state: GroupTables, request: WriteTxnMarkerRequest, _token: Token, _now_ms: int) -> Result:
    """A marker of an older producer epoch is refused: that transaction is over; and so is one of a transaction
    coordinator that another one has followed (Kafka: ProducerAppendInfo#appendEndTxnMarker).

    From transaction version 2 on the marker has an epoch above that of its transaction (KIP-1228). One with the epoch
    of an open transaction is the late marker of the transaction before; without an open one it is a repetition.
    """
    if request.transaction_version == _UNKNOWN_VERSION:
        return Result(response=WriteTxnMarkerResponse(ErrorCode.UNKNOWN_SERVER_ERROR))
    epoch = state.offsets.producer_epochs.get(request.producer_id, -1)
    if request.transaction_version >= _EPOCH_PER_TRANSACTION_SINCE and request.producer_id in state.offsets.pending:
        epoch += 1
    if request.producer_epoch < epoch:
        return Result(response=WriteTxnMarkerResponse(ErrorCode.INVALID_PRODUCER_EPOCH))
    if request.coordinator_epoch < state.offsets.coordinator_epochs.get(request.producer_id, -1):
        return Result(response=WriteTxnMarkerResponse(ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    return Result(
        response=WriteTxnMarkerResponse(ErrorCode.NONE),
        transaction=Transaction(
            request.producer_id, request.producer_epoch, request.committed, request.coordinator_epoch
        ),
    )


def describe_producers(state: GroupTables, _request: DescribeProducersRequest, _token: Token, _now_ms: int) -> Result:
    """Producers with an open transaction, in the order of their first records. Kafka also names producers without one,
    which are of no use to look for transactions that hang (KIP-664)."""
    offsets = state.offsets
    found = []
    for producer_id, groups in offsets.pending.items():
        stored = [each for of_group in groups.values() for of_topic in of_group.values() for each in of_topic.values()]
        found.append(
            OpenProducer(
                producer_id,
                offsets.producer_epochs.get(producer_id, -1),
                max([value.commit_timestamp_ms for _, value in stored]),
                offsets.coordinator_epochs.get(producer_id, -1),
                min([offset for offset, _ in stored]),
            )
        )
    found.sort(key=lambda producer: producer.start_offset)
    return Result(response=DescribeProducersResponse(ErrorCode.NONE, tuple(found)))
