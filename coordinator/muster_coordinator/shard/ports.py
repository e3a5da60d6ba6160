"""The ports of a shard to its surroundings. The pod implements these ports over asyncio, the simulation over virtual
time.

The state machine that a shard runs is a port as well: `muster_coordinator.state_machine`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.state_machine import Records

ShardT = TypeVar("ShardT", contravariant=True)
"""`shard.Shard`, which these ports cannot name: it imports them."""

NO_PRODUCER = (-1, -1)
"""Producer id and epoch of a batch outside transactions."""


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Returns milliseconds since 1970, for what is written into records."""
        ...

    def monotonic_ms(self) -> int:
        """Returns milliseconds for timers and time-outs; never jumps."""
        ...

    def monotonic_s(self) -> float:
        """Returns seconds of the same clock at its full resolution, for measurements."""
        ...


class Answer(Protocol):
    """One request that waits for its answer. Exactly one of the two methods is called, once."""

    def answer(self, response: Any) -> None: ...

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error in the shape of the request."""
        ...


class PartitionWriter(Protocol):
    """The destination of a shard's records: the log of one partition, for one leadership (Kafka: PartitionWriter).

    The owner of the log calls `Shard.committed` and `Shard.reads_confirmed`. The appending methods raise OSError.
    """

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        ...

    def append(
        self,
        records: list[Records],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] = NO_PRODUCER,
        *,
        control: bool = False,
    ) -> None:
        """Append one batch. With a `producer` (id, epoch) the batch is transactional."""
        ...

    def append_imported(self, batch: RecordBatch, epoch: int) -> None:
        """Append a batch of another log with the offsets and the epoch of this one."""
        ...

    def confirm_read(self) -> int:
        """Returns the read round that must be confirmed before what is read now may be shown; 0: no round is needed,
        because no other replica can have elected another leader."""
        ...


class Scheduler(Protocol[ShardT]):
    """Gives shards their turns."""

    def drain_soon(self, shard: ShardT) -> None:
        """Call `shard.drain` in the coming turn, then write what all shards staged with one write."""
        ...

    def arm_timer(self, shard: ShardT, deadline_ms: int) -> None:
        """Call `shard.fire_timers()` at `deadline_ms` of the monotonic clock, or a little later."""
        ...

    def disarm(self, shard: ShardT) -> None:
        """Call `shard.fire_timers` no more: the shard has stopped serving."""
        ...


class ShardEvents(Protocol[ShardT]):
    """Learns what happens to a shard."""

    def state_changed(self, shard: ShardT) -> None:
        """`shard.state` is another one."""
        ...

    def storage_failed(self, error: Exception) -> None:
        """A write to the log failed: nothing more may be written before the storage is opened again."""
        ...
