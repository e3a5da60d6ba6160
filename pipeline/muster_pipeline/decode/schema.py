"""The columns of a decoded segment, the kinds of rows, and the codes of problems.

One row per record, and one per stretch of bytes that could not be read: nothing of a file is dropped silently. Rows of
a file come in its order. What a row is never depends on the columns and rows that are selected.
"""

from __future__ import annotations

import pyarrow as pa


class Kind:
    """Values of the column `kind`."""

    OFFSET_COMMIT = "offset_commit"
    OFFSET_TOMBSTONE = "offset_tombstone"
    GROUP_METADATA = "group_metadata"
    GROUP_TOMBSTONE = "group_tombstone"
    CONSUMER_GROUP = "consumer_group"
    """A record of a group of the consumer protocol (KIP-848): the group, a member, an assignment or an expression;
    `record_type` says which."""
    CONSUMER_GROUP_TOMBSTONE = "consumer_group_tombstone"
    TRANSACTION_STATE = "transaction_state"
    """State of a transactional id; of `__transaction_state`, as the next two."""
    TRANSACTION_TOMBSTONE = "transaction_tombstone"
    """A transactional id has expired."""
    PRODUCER_IDS = "producer_ids"
    """A block of producer ids that the partition has reserved; only Muster writes it (ADR 25)."""
    TXN_COMMIT = "txn_commit"
    TXN_ABORT = "txn_abort"
    CONTROL = "control"
    """Any other control record: a leader change, a replica set."""
    UNKNOWN = "unknown"
    """A record type that belongs to another protocol; `record_type` says which."""
    UNREADABLE = "unreadable"
    """A record of a known type whose bytes do not parse, or of an unknown value version; `problem` says why."""
    DAMAGED = "damaged"
    """Bytes that are no valid batch; `problem`, `position` and `problem_bytes` say what and where."""


KINDS = frozenset(value for name, value in vars(Kind).items() if name.isupper())
PROBLEM_KINDS = frozenset({Kind.UNREADABLE, Kind.DAMAGED})


class Problem:
    """Values of the column `problem`."""

    ZERO_TAIL = "zero_tail"
    """The rest of the file is zeros: preallocated, or lost with a page cache."""
    TORN_BATCH = "torn_batch"
    """The file ends inside a batch."""
    BAD_CRC = "bad_crc"
    UNREADABLE_MAGIC = "unreadable_magic"
    """A batch of another format version than 2."""
    BAD_HEADER = "bad_header"
    """A length, offset or count that cannot be; with a bad length all that lies behind it is unreadable."""
    BAD_RECORDS = "bad_records"
    """The CRC is right, but the records do not parse, or do not decompress."""
    TOO_LARGE = "too_large"
    """A batch above the limit of the reader, as it is or decompressed."""
    REWRITTEN = "rewritten"
    """The log of a stream is not the one that was read before, and begins anew behind this row."""
    JOURNAL_ONLY = "journal_only"
    """Batches behind the last one are in the pod's journal and not in its segments yet (a pod's directory was read)."""
    UNSUPPORTED_VERSION = "unsupported_version"
    BAD_RECORD = "bad_record"


_TOPIC_PARTITION = pa.struct([pa.field("topic", pa.string()), pa.field("partition", pa.int32())])

_MEMBER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("group_instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("subscription", pa.binary()),
        pa.field("assignment", pa.binary()),
        # of the consumer protocol; null where the bytes are of another one
        pa.field("assigned", pa.list_(_TOPIC_PARTITION)),
    ]
)

_ASSIGNED = pa.struct(
    [
        pa.field("topic_id", pa.binary()),  # 16 bytes
        pa.field("partition", pa.int32()),
        pa.field("assignment_epoch", pa.int32()),  # null in targets, and where a broker before 4.3 wrote it
    ]
)

SCHEMA = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("offsets_partition", pa.int32()),  # of __consumer_offsets, from the directory's name; null if unknown
        pa.field("transaction_partition", pa.int32()),  # of __transaction_state; null in logs of __consumer_offsets
        pa.field("position", pa.int64()),  # byte of the file at which the batch, or the damage, begins
        pa.field("offset", pa.int64()),  # of the record in the log; null for damaged bytes
        pa.field("leader_epoch", pa.int32()),  # in which the batch was appended
        pa.field("timestamp_ms", pa.int64()),  # of the record
        pa.field("kind", pa.string()),
        pa.field("record_type", pa.int16()),  # of the key; of control records the control type
        pa.field("value_version", pa.int16()),
        # of a transactional or control batch, else of a transactional id; null without one
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),  # of the topic
        pa.field("committed_offset", pa.int64()),
        pa.field("committed_leader_epoch", pa.int32()),  # -1 unknown
        pa.field("metadata", pa.string()),
        pa.field("commit_timestamp_ms", pa.int64()),
        pa.field("expire_timestamp_ms", pa.int64()),  # -1: the group's retention decides
        pa.field("protocol_type", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("protocol", pa.string()),
        pa.field("leader", pa.string()),  # member id
        pa.field("state_timestamp_ms", pa.int64()),  # -1 unknown
        pa.field("members", pa.list_(_MEMBER)),
        # of the consumer protocol
        pa.field("member_id", pa.string()),
        pa.field("epoch", pa.int32()),  # of the group (3), its assignment (6) or a member (8)
        pa.field("previous_epoch", pa.int32()),  # of the member
        pa.field("assignment_ms", pa.int64()),  # when the assignment was computed; 0 unknown
        pa.field("member_state", pa.string()),  # Kafka's name: STABLE, UNREVOKED_PARTITIONS, ...
        pa.field("owned", pa.list_(_ASSIGNED)),  # what a member has (8), or is meant to have (7)
        pa.field("pending_revocation", pa.list_(_ASSIGNED)),
        pa.field("group_instance_id", pa.string()),
        pa.field("rack_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("subscribed_topics", pa.list_(pa.string())),  # of a member, or what an expression stands for (16)
        pa.field("subscribed_regex", pa.string()),  # of a member, or the expression itself (16)
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("assignor", pa.string()),
        pa.field("classic_protocols", pa.list_(pa.string())),  # of a member of the classic protocol; null of others
        pa.field("transactional_id", pa.string()),
        pa.field("transaction_state", pa.string()),  # Kafka's name: Ongoing, PrepareCommit, ...
        pa.field("transaction_partitions", pa.list_(_TOPIC_PARTITION)),  # to be marked at the end
        pa.field("transaction_timeout_ms", pa.int32()),
        pa.field("transaction_start_ms", pa.int64()),  # -1: none has begun
        pa.field("transaction_update_ms", pa.int64()),
        pa.field("transaction_version", pa.int16()),  # of the client: 0 or 2 (KIP-890)
        pa.field("problem", pa.string()),
        pa.field("problem_detail", pa.string()),
        pa.field("problem_bytes", pa.int64()),
    ]
)


def select_schema(columns: list[str] | None) -> pa.Schema:
    """The schema of `columns` in their order, of all for None. ValueError names columns that do not exist."""
    if columns is None:
        return SCHEMA
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown:
        raise ValueError(f"no such columns: {', '.join(unknown)}; there are {', '.join(SCHEMA.names)}")
    return pa.schema([SCHEMA.field(name) for name in columns])
