"""What a shard needs of the pod around it; the pod implements these over asyncio, the simulation over virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from muster_coordinator.replication.messages import Message
    from muster_coordinator.shard.shard import Shard


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970: for what is written into records."""
        ...

    def monotonic_ms(self) -> int:
        """For timers and time-outs; never jumps."""
        ...

    def monotonic_s(self) -> float:
        """The same clock, as fine as it gets: for measuring."""
        ...


class Scheduler(Protocol):
    """Gives shards their turns."""

    def drain_soon(self, shard: Shard) -> None:
        """Call `shard.drain` in the coming turn, then write what all shards staged with one write."""
        ...

    def arm_timer(self, shard: Shard, deadline_ms: int) -> None:
        """Call `shard.fire_timers()` at `deadline_ms` of the monotonic clock, or a little later."""
        ...

    def disarm(self, shard: Shard) -> None:
        """Call `shard.fire_timers` no more: the shard has stopped serving."""
        ...


class ShardEvents(Protocol):
    """Learns what happens to a shard."""

    def state_changed(self, shard: Shard) -> None:
        """`shard.state` is another one."""
        ...

    def storage_failed(self, error: Exception) -> None:
        """A write to the log failed: nothing more may be written before the storage was opened anew."""
        ...


class Peers(Protocol):
    """The way to the other pods' replicas. What arrives goes to ``ReplicaManager.receive(partition, message)``, and
    ``ReplicaManager.disconnected(log_id)`` says that the connection to a replica's pod was closed.

    Messages may get lost, be late or come twice; between two pods they should come in order.
    """

    def send(self, partition: int, message: Message) -> None:
        """Queue for the pod that has the replica ``message.to`` of ``partition``; sent at the end of this turn of the
        loop. Dropped if that pod is not known, or too much is queued for it.
        """
        ...
