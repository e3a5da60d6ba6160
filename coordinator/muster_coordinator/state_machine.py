"""What an operation of a state machine returns: records to append, answers to send, timers to set.

The state machine does no I/O: ``shard`` appends the records, sends the answers once the log up to and including the
records is committed (an answer without records waits for the log end at that moment: it may show state that is not
committed yet), and runs the timers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Record: TypeAlias = tuple[bytes, bytes | None, Any]
"""(key, value, change) of one record. A value of None is a tombstone. ``change`` is what ``records.decode_record(key,
value)`` gives for these bytes: the leader replays it without decoding what it has just encoded; a property test holds
the two equal."""

Token: TypeAlias = Any
"""The shard's name for one request that waits for an answer. The state machine only stores and returns it."""

TimerKey: TypeAlias = tuple[str, ...]
"""(kind, group_id, member_id or "", ...). One timer per key: setting it again replaces it, and a replaced or cancelled
timer never fires."""


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey
    delay_ms: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request of an earlier operation that was parked in the state (a join or a sync)."""

    token: Token
    response: object


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """Marks a result's records as transactional: they get a batch of their own with these producer fields."""

    producer_id: int
    producer_epoch: int
    marker: bool | None = None  # None: offsets of an open transaction; True: COMMIT marker; False: ABORT marker
    coordinator_epoch: int = -1


class Result(msgspec.Struct, frozen=True, gc=False):
    """Outcome of one operation.

    ``response`` answers the request of this operation; None means that it is parked in the group state under its
    token and comes as a ``Reply`` of a later operation (or that the operation was a timer).
    """

    records: tuple[Record, ...] | list[Record] = ()
    response: object | None = None
    replies: tuple[Reply, ...] | list[Reply] = ()
    timers: tuple[SetTimer | CancelTimer, ...] | list[SetTimer | CancelTimer] = ()
    transaction: Transaction | None = None


NOTHING = Result()
