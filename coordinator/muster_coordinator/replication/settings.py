"""Times of the protocol: for liveness only, safety rests on none of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReplicationSettings"]


@dataclass(frozen=True)
class ReplicationSettings:
    """Milliseconds of a monotonic clock unless the name says otherwise."""

    heartbeat_ms: int = 150
    """A leader sends something to every replica at least so often."""
    leader_timeout_ms: int = 1_000
    """Silence after which a leader without a majority steps down, and a follower calls its leader dead."""
    election_timeout_ms: int = 2_000
    """An election without the seals or the records that it needs fails after so long without progress."""
    ending_leader_ms: int = 100
    """A planned move waits so long for the log of the leader that it ends, when a majority is sealed already."""
    resend_ms: int = 300
    """What was sent and not answered is sent again."""
    append_bytes_max: int = 128 << 10
    """Of records in one message to a replica that is behind. It takes the sender a few milliseconds, and the receiver
    tens of them, in which neither does anything else."""
    fetch_bytes_max: int = 1 << 20
    """Of records in one answer to a candidate, for which an election waits."""
    chunks_in_flight_max: int = 4
    """Messages of that kind that a replica which is behind may have unanswered."""
