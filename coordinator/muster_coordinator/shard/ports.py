"""What a shard needs of the pod around it; the pod implements these over asyncio, the simulation over virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
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


class Host(Protocol):
    """The pod, as its shards see it."""

    def flush_soon(self, shard: Shard) -> None:
        """Call ``shard.drain`` in this turn of the loop, then write what all shards staged with one write."""
        ...

    def arm_timer(self, shard: Shard, deadline_ms: int) -> None:
        """Call ``shard.fire_timers()`` at ``deadline_ms`` of the monotonic clock, or a little later."""
        ...

    def state_changed(self, shard: Shard) -> None:
        """Tell whoever watches the pod."""
        ...

    def storage_failed(self, error: Exception) -> None:
        """A write to the log failed: nothing more may be written before the storage was opened anew."""
        ...
