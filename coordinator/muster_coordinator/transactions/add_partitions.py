"""AddPartitionsToTxn and AddOffsetsToTxn: the first partition begins a transaction.

A partition is added before anything is written to it, so the leader at its end knows all partitions to mark. One
that nobody here can mark is refused here: at the end it would leave the transaction open for ever.

Source: TransactionCoordinator#handleAddPartitionsToTransaction, #handleVerifyPartitionsInTransaction;
KafkaApis#handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import Partitions, TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsRequest,
    AddPartitionsResponse,
    TopicErrors,
    TopicPartitions,
)
from muster_coordinator.state_machine import NOTHING, Record, Result, SetTimer, Token
from muster_coordinator.transactions.admission import every_partition, refuse
from muster_coordinator.transactions.states import PREPARED
from muster_coordinator.transactions.tables import TransactionTables, transaction_record, transaction_timer
from muster_coordinator.transactions.transitions import EPOCH_BUMP_VERSION, with_partitions

BY_BROKERS_SINCE = 4
"""Version of AddPartitionsToTxn that brokers send, for clients of transaction version 2 (Kafka: TransactionVersion)."""


def add_partitions(state: TransactionTables, request: AddPartitionsRequest, _token: Token, now_ms: int) -> Result:
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    by_broker = request.api_version >= BY_BROKERS_SINCE
    wrong = _refused_partitions(state, request.topics, by_broker)
    if wrong is not None:
        return Result(response=AddPartitionsResponse(request.transactional_id, wrong))
    if request.verify_only:
        return Result(response=AddPartitionsResponse(request.transactional_id, _verify(state, request)))
    version = EPOCH_BUMP_VERSION if by_broker else 0
    code, result = _add(
        state, request.transactional_id, (request.producer_id, request.producer_epoch), request.topics, version, now_ms
    )
    response = AddPartitionsResponse(request.transactional_id, every_partition(request.topics, code))
    return Result(result.records, response, timers=result.timers)


def add_offsets(state: TransactionTables, request: AddOffsetsToTxnRequest, _token: Token, now_ms: int) -> Result:
    """Adds the partition with the offsets of the group. Clients of transaction version 2 do not send it."""
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    place = state.topics.partition_of_group(request.group_id)
    if place is None:
        return Result(response=AddOffsetsToTxnResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    topic, partition = place
    producer = (request.producer_id, request.producer_epoch)
    code, result = _add(state, request.transactional_id, producer, ((topic, (partition,)),), 0, now_ms)
    return Result(result.records, AddOffsetsToTxnResponse(code), timers=result.timers)


def _refused_partitions(state: TransactionTables, topics: TopicPartitions, by_broker: bool) -> TopicErrors | None:
    """Returns the answer if one of the partitions cannot be added: then none is, as in Kafka. None: all can."""
    answer: dict[str, dict[int, int]] = {}
    refused = False
    for topic, partitions in topics:
        codes = answer.setdefault(topic, {})
        for partition in partitions:
            code = _partition_error(state, topic, partition, by_broker)
            refused = refused or code is not ErrorCode.NONE
            codes[partition] = int(code or ErrorCode.OPERATION_NOT_ATTEMPTED)
    return tuple([(topic, tuple(codes.items())) for topic, codes in answer.items()]) if refused else None


def _partition_error(state: TransactionTables, topic: str, partition: int, by_broker: bool) -> ErrorCode:
    """The topics that can be marked are internal ones, which a client cannot name: for it there is AddOffsetsToTxn."""
    if not state.topics.takes_markers(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not by_broker:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if state.topics.has(topic, partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _producer_error(value: TransactionLogValue, producer: tuple[int, int]) -> ErrorCode:
    if value.producer_id != producer[0]:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if value.producer_epoch == producer[1] else ErrorCode.PRODUCER_FENCED


def _add(
    state: TransactionTables,
    transactional_id: str,
    producer: tuple[int, int],
    topics: TopicPartitions,
    client_version: int,
    now_ms: int,
) -> tuple[ErrorCode, Result]:
    """While markers are missing, the producer may come with the producer id and epoch of its next transaction."""
    value = state.value(transactional_id)
    if value is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOTHING
    code = ErrorCode.CONCURRENT_TRANSACTIONS if value.status in PREPARED else _producer_error(value, producer)
    if code is not ErrorCode.NONE:
        return code, NOTHING
    ongoing = value.status is TransactionStatus.ONGOING
    if not ongoing and state.topics.holds_transactions:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOTHING  # clients ask again, here
    partitions = _merged(value.partitions, topics)
    if ongoing and partitions == value.partitions:
        return ErrorCode.NONE, NOTHING
    records: list[Record] = [
        transaction_record(transactional_id, with_partitions(value, partitions, client_version, now_ms))
    ]
    if not state.fits(records):
        return ErrorCode.UNKNOWN_SERVER_ERROR, NOTHING
    timers = () if ongoing else (SetTimer(transaction_timer(transactional_id), value.timeout_ms),)
    return ErrorCode.NONE, Result(records, timers=timers)


def _merged(old: Partitions, added: TopicPartitions) -> Partitions:
    """All partitions, each topic once, the partitions of a topic in order."""
    merged = {topic: set(partitions) for topic, partitions in old}
    for topic, partitions in added:
        merged.setdefault(topic, set()).update(partitions)
    return tuple([(topic, tuple(sorted(partitions))) for topic, partitions in merged.items() if partitions])


def _verify(state: TransactionTables, request: AddPartitionsRequest) -> TopicErrors:
    """NONE for the partitions that are in the transaction, TRANSACTION_ABORTABLE for the others."""
    value = state.value(request.transactional_id)
    if value is None:
        return every_partition(request.topics, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    code = _producer_error(value, (request.producer_id, request.producer_epoch))
    if code is ErrorCode.NONE and value.status in PREPARED:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    if code is not ErrorCode.NONE:
        return every_partition(request.topics, code)
    members = {(topic, partition) for topic, partitions in value.partitions for partition in partitions}
    return tuple(
        [
            (
                topic,
                tuple(
                    [
                        (index, int(ErrorCode.NONE if (topic, index) in members else ErrorCode.TRANSACTION_ABORTABLE))
                        for index, _ in codes
                    ]
                ),
            )
            for topic, codes in every_partition(request.topics, ErrorCode.NONE)
        ]
    )
