"""Encodes the durable state of a partition in parts, which a checkpoint stores, and restores it from them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from muster_coordinator.records.transaction_log import TransactionLogValue
from muster_coordinator.transactions.tables import TransactionTables

SNAPSHOT_VERSION = 1
"""Raise it whenever a part's shape or meaning changes: older checkpoints are then ignored."""


class _StatePart(msgspec.Struct, array_like=True, gc=False):
    """`ids`: (transactional id, offset of its record, value). `reserved_to`: end of the reserved producer ids, or 0."""

    ids: list[tuple[str, int, TransactionLogValue]] = []
    reserved_to: int = 0


_encode = msgspec.msgpack.Encoder().encode
decode_part = msgspec.msgpack.Decoder(_StatePart).decode


def snapshot_parts(state: TransactionTables, size: int) -> Iterator[bytes]:
    """Returns all of the durable state, with about `size` transactional ids in each part. The state must not change
    until the last part is taken."""
    yield _encode(_StatePart(reserved_to=state.producer_ids.reserved_to))
    ids = ((transactional_id, offset, value) for transactional_id, (offset, value) in state.ids.items())
    while taken := list(islice(ids, size)):
        yield _encode(_StatePart(taken))


def restore_part(state: TransactionTables, data: bytes) -> None:
    """Put a part into a state that was empty before the first one. Raises msgspec.MsgspecError."""
    part = decode_part(data)
    state.producer_ids.restore(part.reserved_to)
    for transactional_id, offset, value in part.ids:
        state.store(transactional_id, (offset, value))
