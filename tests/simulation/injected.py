"""What the simulation makes fail, by name: each run counts how often each of them really struck."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Injected"]


class Injected(StrEnum):
    """Source: what replication must stand; docs/replication.md, "Simulation"."""

    CRASH = "crash of a process"
    CRASH_BETWEEN_EFFECTS = "crash between two effects of the core"
    CRASH_OF_ALL = "crash of all processes"
    RESTART = "restart"
    WRITE_LOST = "unsynced write lost"
    CACHE_LOST = "page cache lost under flush os"
    WRITE_TORN = "write torn"
    BIT_FLIPPED = "bit flipped"
    DISK_FULL = "disk full"
    IO_ERROR = "I/O error"
    SLOW_DISK = "slow disk"
    VOLUME_LOST = "volume lost"
    LOSS = "message lost"
    DELAY = "message late"
    DUPLICATE = "message doubled"
    REORDERED = "message overtaken"
    CUT_ONE_WAY = "message cut off in one direction"
    CUT = "message cut off in both directions"
    FREEZE = "event at a frozen process"
    CLOCK_JUMP = "jump of a wall clock"
    CLOCK_DRIFT = "drift of a monotonic clock"
    CONFLICT = "409 of the API server"
    STALE_READ = "old view of the API server"
    WATCH_GONE = "410 of the API server"
    THROTTLED = "429 of the API server"
    WRITE_UNKNOWN = "write that timed out and was done"
    OUTAGE = "call while the API server was away"
    OPERATOR_CRASH = "crash of an operator"
    OPERATOR_CRASH_IN_STEPS = "crash of an operator between two actions"
    STORE_RESTORED = "etcd restored from a backup"
    STATUS_LOST = "status of an object lost"
    TWO_OPERATORS = "write of one operator behind another's"
