"""The outcome of an operator's call about one partition: one type from the protocol core to the operator.

The core and the pod make a `CallResult`, the pod API carries it as JSON, and the operator reads it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CallStatus(StrEnum):
    """The number is the code that replication.md gives the case."""

    ACCEPTED = "accepted"  # 200: an election's leader is ACTIVE, a resignation's promise is durable, the log is there
    LOADING = "loading"  # 425: this election is under way; the watch stream tells its end
    STALE_EPOCH = "staleEpoch"  # 409: the epoch is not higher than the promised one, which the result carries
    WRONG_REPLICA = "wrongReplica"  # 409: the log id is not here, or in no set of the call
    CANNOT_WRITE = "cannotWrite"  # 507: disk full or I/O error; nothing was promised
    DAMAGED = "damaged"  # 500: the log here must not be served; the message says why
    INVALID = "invalid"  # 400: the call makes no sense for this partition; the message says why
    SET_CONFLICT = "setConflict"  # 409: the log names other sets than the call; the result carries them
    LEADER_LIVES = "leaderLives"  # 409: a majority hears a leader; nothing was promised; `force` would go on
    BETTER_LOG = "betterLog"  # 409: nothing was promised; the replica `better_log_id` should be elected
    NO_MAJORITY = "noMajority"  # 503: too few replicas answered; the promise of the epoch may stand


class FenceRefusal(StrEnum):
    """The reason why a fence or an import of a re-shard does nothing: `podapi.reshard.FenceResult.reason`."""

    NOT_LEADER = "NotLeader"  # this pod does not lead the partition, or stopped leading it meanwhile: ask the leader
    NOT_COMMITTED = "NotCommitted"  # no majority has the record yet: repeat the call
    STALE = "Stale"  # a later re-shard, or a later step of this one, was here already
    NOT_EMPTY = "NotEmpty"  # records cannot be imported into a partition that has state
    INVALID = "Invalid"  # the bytes are not batches that a re-shard writes


class CallResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of an election, a resignation, a creation or a removal. `message` is for people.

    `epoch`: the highest that the replica has promised (-1: none). `log_id`: the replica that is here ("": none).
    After a resignation, `ended_epoch` is the epoch in which this pod led (-1: it did not lead). After a creation,
    `end_offset` is the end of the log, and `used` tells that it ever promised an epoch or held a record: only an unused
    one takes a bootstrap. After a removal, ACCEPTED says that this log is not here, any more or at all; STALE_EPOCH
    that it promised a higher epoch than that of the call, so it may count again; INVALID that it is in use.
    SET_CONFLICT comes with `replicas` and `previous_replicas`, the sets that the log names, and BETTER_LOG with
    `better_log_id`.
    """

    partition: int
    status: CallStatus
    epoch: int = -1
    message: str = ""
    log_id: str = ""
    ended_epoch: int = -1
    end_offset: int = 0
    used: bool = False
    replicas: tuple[str, ...] = ()
    previous_replicas: tuple[str, ...] = ()
    better_log_id: str = ""
