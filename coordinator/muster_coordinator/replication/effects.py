"""The effects that the core asks its host to carry out.

The host carries out the effects of one call in their order. Those of `StorageEffect` must be durable when the host
reports `storage_done`; until then the core keeps whatever else arrives in a queue. Messages may get lost, late or
double; nothing else may.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from muster_coordinator.calls import CallResult
from muster_coordinator.replication.messages import Batch, Message
from muster_coordinator.replication.sets import Sets
from muster_coordinator.tuning.pacing import Urgency


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The durable state of a replica beside its log. `leader` "": promised to no replica (a resignation).

    `incarnation` counts how often data was lost here; acks of an earlier one are worth nothing. `rebuilding`: the
    log lacks what was acked once. `used`: the log may have been counted: the replica acked a record, or was about to
    lead. An empty log that was used may have lost all that it had; one that was not has lost nothing that counts.
    """

    epoch: int = -1
    leader: str = ""
    incarnation: int = 0
    rebuilding: bool = False
    used: bool = False


class CallEnded(msgspec.Struct, frozen=True):
    """The call that the host gave to the core with the number `call` has ended."""

    call: int
    result: CallResult


class StorePromise(msgspec.Struct, frozen=True, gc=False):
    """Storage. Both slots may be written; the promise is fsynced in every flush mode."""

    promise: Promise


class Truncate(msgspec.Struct, frozen=True, gc=False):
    """Storage. Cut the log so that it ends at `end_offset`, fsynced, after every write that was staged before.

    The replayed state must be rebuilt if it holds more than that.
    """

    end_offset: int


class StartCopy(msgspec.Struct, frozen=True, gc=False):
    """Storage. Throw away an unfinished copy and begin an empty one next to the log."""


class SwapCopy(msgspec.Struct, frozen=True, gc=False):
    """Storage. Fsync the copy and put it in place of the log by rename. State and checkpoints of the old log go."""


class AppendRange(msgspec.Struct, frozen=True, gc=False):
    """Append `batches` to the log (with `to_copy`: to the copy), whose end becomes `end`. Report `log_durable`.

    `horizon` is kept with the log: tombstones below it are missing here too from now on.
    """

    end: int
    batches: tuple[Batch, ...]
    horizon: int
    to_copy: bool = False


class ReadLog(msgspec.Struct, frozen=True, gc=False):
    """Read whole batches from `start` on, about `bytes_max`; report `log_read` with the same ticket.
    `urgency`: ELECTION or BACKGROUND.
    """

    ticket: int
    start: int
    bytes_max: int
    urgency: Urgency


class Send(msgspec.Struct, frozen=True, gc=False):
    message: Message


class Load(msgspec.Struct, frozen=True, gc=False):
    """Replay everything up to the log's end, keep what is replayed already; report `loaded`."""

    epoch: int


class AppendLeaderChange(msgspec.Struct, frozen=True, gc=False):
    """Append a leader-change record at the log's end, and report it by `appended`, at once."""

    epoch: int
    sets: Sets


class AppendReplicaSet(msgspec.Struct, frozen=True, gc=False):
    """Append a set record at the log's end, and report it by `appended`, at once."""

    epoch: int
    replicas: tuple[str, ...]


class Active(msgspec.Struct, frozen=True, gc=False):
    """The leader-change record of `epoch` is committed: serve."""

    epoch: int


class SteppedDown(msgspec.Struct, frozen=True, gc=False):
    """The leadership of `epoch`, ACTIVE or not, ended: answer NOT_COORDINATOR to all that waits, drop timers and a
    checkpoint that is not published, rebuild the state from checkpoint and log.

    `elected_again`: by a higher election of this very replica; what is loaded may stay, and requests may wait.
    """

    epoch: int
    reason: str
    elected_again: bool = False


class CommitPointMoved(msgspec.Struct, frozen=True, gc=False):
    """All below `offset` is committed. A leader answers what waits for it, a follower replays up to there."""

    offset: int


class ReadsConfirmed(msgspec.Struct, frozen=True, gc=False):
    """Reads whose `confirm_read` gave `round` or less are confirmed."""

    round: int


class SetFinal(msgspec.Struct, frozen=True, gc=False):
    """The set record is committed: `replicas` alone count. The operator may clear previousReplicas."""

    replicas: tuple[str, ...]


class DataLossAccepted(msgspec.Struct, frozen=True, gc=False):
    """A person allowed it: the best log of those that could be reached was taken. Worth an event."""

    epoch: int
    end_offset: int


class DiscardCheckpoints(msgspec.Struct, frozen=True, gc=False):
    """The log lost data: no checkpoint of it may be loaded any more."""


StorageEffect: TypeAlias = StorePromise | Truncate | StartCopy | SwapCopy
Effect: TypeAlias = (
    StorageEffect
    | AppendRange
    | ReadLog
    | Send
    | Load
    | AppendLeaderChange
    | AppendReplicaSet
    | Active
    | SteppedDown
    | CommitPointMoved
    | ReadsConfirmed
    | SetFinal
    | DataLossAccepted
    | DiscardCheckpoints
    | CallEnded
)
