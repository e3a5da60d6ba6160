"""A coordinator as the runtime that runs it sees it: a state machine, and what its operations return.

A state machine does no I/O. `shard.Shard` runs its operations, appends their records, sends the answers once the log
up to and including the records is committed, and runs the timers. An answer without records waits for the log end at
that moment, because it may show state that is not committed yet. `replica` loads a state machine from a log.

Source: CoordinatorShard, CoordinatorResult and CoordinatorPlayback of Kafka's coordinator-common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from muster_coordinator.records.batch import RecordBatch, RecordRun
from muster_coordinator.records.structs import BatchRecord

Record: TypeAlias = tuple[bytes, bytes | None, Any]
"""(key, value, change) of one record. A value of None is a tombstone. `change` equals what the state machine's decoder
gives for these bytes: the leader replays it without decoding what it has just encoded."""

Records: TypeAlias = Record | RecordRun
"""One record, or several that are encoded together: a run. A run is also the change of all of them at once: its replay
does what that of its records does, one after the other."""

Token: TypeAlias = Any
"""The shard's name for one request that waits for an answer. The state machine only stores and returns it."""

TimerKey: TypeAlias = tuple[str, ...]
"""Names a timer; its first part is the kind. One timer per key: setting it again replaces it, and a replaced or
cancelled timer never fires."""


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey
    delay_ms: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request that an earlier operation parked in the state, such as a join or a sync."""

    token: Token
    response: object


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """Marks the records of a result as transactional: they get a batch of their own with these producer fields."""

    producer_id: int
    producer_epoch: int
    marker: bool | None = None  # None: offsets of an open transaction; True: COMMIT marker; False: ABORT marker
    coordinator_epoch: int = -1


class Imported(msgspec.Struct, frozen=True, gc=False):
    """A batch of another log, to be appended with its own timestamps and producer. `changes`: what each of its records
    says; of a control batch none: it is the marker `committed` of its producer, by the coordinator of that epoch."""

    batch: RecordBatch
    changes: tuple[tuple[BatchRecord, Any], ...] = ()
    committed: bool = False
    coordinator_epoch: int = -1


class Result(msgspec.Struct, frozen=True, gc=False):
    """Outcome of one operation.

    `imported` comes in front of `records`.
    `response` answers the request of this operation. None: the request is parked in the state under its token and is
    answered by a `Reply` of a later operation, or the operation was a timer or an event.
    """

    records: tuple[Record, ...] | list[Record] | list[Records] = ()
    response: object | None = None
    replies: tuple[Reply, ...] | list[Reply] = ()
    timers: tuple[SetTimer | CancelTimer, ...] | list[SetTimer | CancelTimer] = ()
    transaction: Transaction | None = None
    imported: tuple[Imported, ...] | list[Imported] = ()


NOTHING = Result()

Operation: TypeAlias = Callable[[Any, Token, int], Result]
"""(request, token, wall-clock ms) -> Result"""

Decoder: TypeAlias = Callable[[bytes | None, bytes | None], Any]
"""(key, value) of a record -> its change, or `records.structs.UnknownRecord` for a type that the state machine does not
know. Raises RecordDecodeError, UnsupportedValueVersionError."""


class StateMachine(Protocol):
    """One partition of a coordinator (Kafka: CoordinatorShard).

    Durable state changes only in `replay`, `replay_transaction_marker` and `restore`. Live state, such as parked
    requests, exists from `on_loaded` to `on_unloaded`. Times are wall-clock milliseconds since 1970.
    """

    @property
    def operations(self) -> Mapping[type, Operation]:
        """The operation of each type of request."""
        ...

    @property
    def max_batch_bytes(self) -> int:
        """The size limit of a record batch. Only the records of one operation may be split to keep it."""
        ...

    @property
    def key_count(self) -> int:
        """The number of keys that have state, such as groups. 0: no record says anything."""
        ...

    def open_transactions(self, names: int) -> tuple[int, tuple[str, ...]]:
        """(how many transactions are open in this partition, what up to `names` of them are called)."""
        ...

    @property
    def event_counts(self) -> Mapping[str, int]:
        """The events since this object was created, by metric name."""
        ...

    @property
    def gauges(self) -> Mapping[tuple[str, str], int]:
        """The present values of gauges, by metric name and state; "" where a metric has no states."""
        ...

    @property
    def snapshot_version(self) -> int:
        """The format of `snapshot`. A checkpoint of another version is not loaded."""
        ...

    def refuse(self, request: object) -> object | None:
        """Returns the error response that `request` gets in any state, loading included; None if there is none."""
        ...

    # -- replay --------------------------------------------------------------------------------------------------------

    def new_decoder(self) -> Decoder:
        """Returns a decoder for the records of one load. It may keep what it has parsed until the load ends."""
        ...

    def replay(
        self, change: Any, offset: int, timestamp_ms: int, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        """Apply the record at `offset`, or a run of which the first one is there. `producer_id` is -1 outside
        transactions."""
        ...

    def replay_transaction_marker(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int, coordinator_epoch: int
    ) -> None:
        """Apply the COMMIT or ABORT marker at `offset`."""
        ...

    def snapshot(self, size: int) -> Iterator[bytes]:
        """Returns the durable state in parts of about `size` entries. Nothing may be replayed until all are taken."""
        ...

    def check(self, part: bytes) -> None:
        """Raises msgspec.MsgspecError if `restore` cannot take `part`: what was restored before cannot be taken
        back."""
        ...

    def restore(self, part: bytes) -> None:
        """Put a part of a snapshot into this state, which was empty before the first one."""
        ...

    # -- life ----------------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        """The log is replayed, and this pod leads the partition."""
        ...

    def on_unloaded(self) -> tuple[Token, ...]:
        """This pod no longer leads the partition: forget the live state, and return the tokens of parked requests,
        which the shard refuses. The durable state stays."""
        ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        """The timer of `key` has fired."""
        ...

    def on_event(self, event: object, now_ms: int) -> Result:
        """Something has happened in the pod that clients did not ask for, such as `requests.groups.TopicsDeleted`.
        Every state machine of the pod is told; NOTHING if it is not about this one."""
        ...
