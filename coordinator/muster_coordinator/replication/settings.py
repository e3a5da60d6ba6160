"""Times of the protocol. Only liveness depends on them, never safety."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicationSettings:
    """Milliseconds of a monotonic clock unless the name says otherwise."""

    heartbeat_ms: int = 150
    """A leader sends something to every replica at least this often."""
    leader_timeout_ms: int = 1_000
    """Silence after which a leader without a majority steps down, and a follower calls its leader dead."""
    election_timeout_ms: int = 2_000
    """An election that waits for seals or records fails after this time without progress."""
    ending_leader_ms: int = 100
    """A planned move waits this long for the log of the former leader once a majority is sealed."""
    resend_ms: int = 300
    """A message that was not answered within this time is sent again."""
    append_bytes_max: int = 128 << 10
    """Bytes of records in one message to a replica that catches up. The sender needs a few milliseconds for it and the
    receiver tens of them, in which neither does anything else."""
    fetch_bytes_max: int = 1 << 20
    """Bytes of records in one answer to a candidate; the election waits for it."""
    chunks_in_flight_max: int = 4
    """Unanswered messages with records that a replica which catches up may have."""
