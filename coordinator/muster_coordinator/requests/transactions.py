"""Requests and responses of the transaction coordinator, free of protocol versions, as `requests.groups` has those of
the group coordinator.

`None` is null on the wire, times are milliseconds. A producer id of -1 with an epoch of -1 stands for none.
"""

from __future__ import annotations

import msgspec

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, partitions)."""
TopicErrors = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""(topic, ((partition, error_code), ...))."""


class _Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all messages: immutable, cheap to build, not tracked by the garbage collector (messages hold no
    cycles)."""


# -- InitProducerId (22) ----------------------------------------------------------------------------------------------


class InitProducerIdRequest(_Message, frozen=True):
    """`transactional_id` None: an idempotent producer. Producer id and epoch are those that the producer has already
    (KIP-360)."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class InitProducerIdResponse(_Message, frozen=True):
    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


# -- AddPartitionsToTxn (24), AddOffsetsToTxn (25) --------------------------------------------------------------------


class AddPartitionsRequest(_Message, frozen=True):
    """One transaction of an AddPartitionsToTxn request. `verify_only`: ask whether the partitions are in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: TopicPartitions
    api_version: int  # v4+: sent by a broker for a client of transaction version 2 (KIP-890)
    verify_only: bool = False


class AddPartitionsResponse(_Message, frozen=True):
    """Every partition once, each topic once."""

    transactional_id: str
    topics: TopicErrors


class AddPartitionsToTxnRequest(_Message, frozen=True):
    transactions: tuple[AddPartitionsRequest, ...]  # exactly one before v4


class AddPartitionsToTxnResponse(_Message, frozen=True):
    transactions: tuple[AddPartitionsResponse, ...]  # exactly one before v4
    error_code: int = 0  # of the request; v4+


class AddOffsetsToTxnRequest(_Message, frozen=True):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(_Message, frozen=True):
    error_code: int


# -- EndTxn (26) ------------------------------------------------------------------------------------------------------


class EndTxnRequest(_Message, frozen=True):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    api_version: int  # v5+: the client has transaction version 2, and goes on with another epoch (KIP-890)


class EndTxnResponse(_Message, frozen=True):
    """`producer_id` and `producer_epoch`, for clients of transaction version 2: those of the next transaction."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


# -- DescribeTransactions (65), ListTransactions (66) -----------------------------------------------------------------


class DescribeTransactionRequest(_Message, frozen=True):
    """One transactional id of a DescribeTransactions request."""

    transactional_id: str


class DescribedTransaction(_Message, frozen=True):
    error_code: int
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: TopicPartitions = ()


class DescribeTransactionsRequest(_Message, frozen=True):
    transactional_ids: tuple[str, ...]


class DescribeTransactionsResponse(_Message, frozen=True):
    transactions: tuple[DescribedTransaction, ...]


class ListTransactionsRequest(_Message, frozen=True):
    """`duration_ms` -1: transactions of any age. `pattern`: an RE2 expression for whole names; None or "": all."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms: int = -1
    pattern: str | None = None  # v2+


class ListedTransaction(_Message, frozen=True):
    transactional_id: str
    producer_id: int
    state: str


class ListTransactionsResponse(_Message, frozen=True):
    error_code: int
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


# -- Markers: what the coordinator asks of the pod, and what it learns ------------------------------------------------


class MarkersToWrite(_Message, frozen=True):
    """The end of a transaction, decided by the record at offset `prepared_at` of the log: its marker must be written to
    `topics` (Kafka: WriteTxnMarkersRequest)."""

    transactional_id: str
    prepared_at: int
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int  # of the transaction: 2 or 0 (KIP-1228)
    topics: TopicPartitions


class MarkersWritten(_Message, frozen=True):
    """An event: what became of an attempt to write markers, per partition. NONE: the marker is committed there. Another
    code: it is not, or that is not known; and no marker of the attempt is on its way there any more."""

    transactional_id: str
    prepared_at: int
    topics: TopicErrors
