"""Names and columns of the tables. Every run appends to all tables but those of what is there now.

| table | one row for each |
|---|---|
| commits | committed offset, as it was written; transactional ones have a producer_id |
| tombstones | removed offset or group: expiry or deletion, the log does not say which |
| transactions | marker that ends a transaction |
| generations | group metadata record: generation, protocol, members and their assignments |
| consumer_groups | record of a group of the consumer protocol: epochs, members, targets, assignments, expressions |
| transaction_states | state of a transactional id, as it was written, and its removal; of `__transaction_state` |
| quality | record or stretch of bytes that could not be read |
| current_offsets | group, topic and partition with an offset now (derived) |
| current_transactions | transactional id that is there now, as in its last record (derived) |
| memberships | member of a generation (derived) |
| rebalances | change of a group's generation or members: who joined and who left (derived) |
| expiries | removed offset, with the commit that was lost with it (derived) |

Carried from run to run: `open_commits`, of transactions without a marker, and `last_generations`, of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from muster_pipeline.decode.schema import Kind
from muster_pipeline.decode.slow_rows import Row
from muster_pipeline.source.files import SegmentFile
from muster_pipeline.source.topics import BOTH_TOPICS, TRANSACTIONS_TOPIC

ExtraProblems = Callable[[Sequence[SegmentFile]], Iterable[Row]]
"""Rows for the table of problems that the caller knows of segments, and the decoder does not."""

_PLACE = ["offsets_partition", "offset", "timestamp_ms"]
_KEY = ["group", "topic", "partition"]

COLUMNS: dict[str, list[str]] = {
    "commits": [
        *_PLACE,
        *_KEY,
        *("committed_offset", "committed_leader_epoch", "metadata", "commit_timestamp_ms", "expire_timestamp_ms"),
        *("leader_epoch", "producer_id", "producer_epoch"),
    ],
    "tombstones": [*_PLACE, "kind", *_KEY],
    "transactions": [*_PLACE, "kind", "producer_id", "producer_epoch"],
    "generations": [
        *_PLACE,
        *("group", "generation", "protocol_type", "protocol", "leader", "state_timestamp_ms", "members"),
    ],
    "consumer_groups": [
        *(*_PLACE, "kind", "record_type", "group", "member_id", "epoch", "previous_epoch", "assignment_ms"),
        *("member_state", "owned", "pending_revocation", "group_instance_id", "rack_id", "client_id", "client_host"),
        *("subscribed_topics", "subscribed_regex", "rebalance_timeout_ms", "assignor", "classic_protocols"),
    ],
    "transaction_states": [
        *("transaction_partition", "offset", "timestamp_ms", "kind", "transactional_id"),
        *("producer_id", "producer_epoch", "transaction_state", "transaction_partitions", "transaction_timeout_ms"),
        *("transaction_start_ms", "transaction_update_ms", "transaction_version"),
    ],
    "quality": [
        *("file", "offsets_partition", "position", "offset", "timestamp_ms", "kind", "record_type", "value_version"),
        *("problem", "problem_detail", "problem_bytes"),
    ],
}

KINDS_OF: dict[str, list[str]] = {
    "commits": [Kind.OFFSET_COMMIT],
    "tombstones": [Kind.OFFSET_TOMBSTONE, Kind.GROUP_TOMBSTONE],
    "transactions": [Kind.TXN_COMMIT, Kind.TXN_ABORT],
    "generations": [Kind.GROUP_METADATA],
    "consumer_groups": [Kind.CONSUMER_GROUP, Kind.CONSUMER_GROUP_TOMBSTONE],
    "transaction_states": [Kind.TRANSACTION_STATE, Kind.TRANSACTION_TOMBSTONE],
    "quality": [Kind.DAMAGED, Kind.UNREADABLE],
}

TOPICS_OF: dict[str, tuple[str, ...]] = {"transaction_states": (TRANSACTIONS_TOPIC,), "quality": BOTH_TOPICS}
"""The topics whose logs have rows of a table; for all others it is the one of offsets."""

HISTORY = tuple(COLUMNS)
DERIVED = ("current_offsets", "current_transactions", "memberships", "rebalances", "expiries")
APPENDED = ("memberships", "rebalances", "expiries")
"""Derived tables whose rows never change when later records come."""
CARRIED = ("open_commits", "last_generations")
