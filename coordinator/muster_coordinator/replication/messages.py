"""Messages between replicas of one partition.

Every message names sender and addressee by log id; a replica drops what is addressed to another one. `epoch` of a
leader's or candidate's message is the one that it leads or seals; the (epoch, leader) pair of the rules is
(`epoch`, `sender`) there, and (`epoch`, `to`) in the answers. Offsets are log offsets, a range is [start, end).
Source: replication.md, "Identity", "Promise", "Append and commit".
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from muster_coordinator.replication.sets import Sets
from muster_coordinator.tuning.pacing import Urgency

Run: TypeAlias = tuple[int, int]
"""(epoch, start offset): all offsets from there to the next run, or to the end of the range, have this epoch."""


class Batch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One record batch, as it is in the log. `sets`: what a leader-change or set record in it names; the
    receiver of a batch reads that out of `data`.
    """

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes
    sets: Sets | None = None


class _Message(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    sender: str
    to: str
    epoch: int


class Question(_Message, frozen=True):
    """A question before an epoch is promised: is there a live leader, do you hold a better log than this? No durable
    effect.
    """

    ticket: int
    last_epoch: int
    end_offset: int


class QuestionAnswer(_Message, frozen=True):
    """`epoch`: promised by the sender. `live_leader`: heard lately, "" if none. `counts`: it may be counted."""

    ticket: int
    live_leader: str
    better: bool
    counts: bool


class Seal(_Message, frozen=True):
    """Promise `epoch` to the sender."""


class Sealed(_Message, frozen=True):
    """Promised, durably. `runs`: epochs of the log from offset 0; `sets`: its last ones.

    `horizon`: offset below which tombstones were removed. `loss_epoch`: see `LogState`.
    """

    end_offset: int
    runs: tuple[Run, ...]
    sets: Sets | None
    sets_offset: int
    horizon: int
    rebuilding: bool
    incarnation: int
    loss_epoch: int = -1

    @property
    def last_epoch(self) -> int:
        return self.runs[-1][0] if self.runs else -1


class Refused(_Message, frozen=True):
    """`epoch` and `leader` are what the sender promised; `refused_epoch` is that of the refused message."""

    leader: str
    refused_epoch: int


class Fetch(_Message, frozen=True):
    """A candidate asks the best log that it sealed for what is after `start`."""

    start: int
    bytes_max: int


class Fetched(_Message, frozen=True):
    """The range [start, end); less records than offsets where the log was compacted. `previous_epoch`: of the
    offset before `start`, -1 at the start of the log. `copy_mark`: see `LogState`.
    """

    start: int
    end: int
    previous_epoch: int
    runs: tuple[Run, ...]
    batches: tuple[Batch, ...]
    horizon: int
    copy_mark: int = 0


class Append(_Message, frozen=True):
    """The range [start, end) of the leader's log, or nothing (a heartbeat): then start and end are equal.

    `round`: number of the leader's turn in which it was sent; an ack with it confirms reads that came before.
    `leader_end`: the leader's log end when it was sent. `incarnation`: the addressee's, as far as the leader knows.
    `horizon`: offset below which the leader's log lacks tombstones. `sync`: 0, or the number of a full copy that the
    addressee builds next to its log. `loss_epoch`: that of the leader's log, see `LogState`.
    """

    start: int
    end: int
    previous_epoch: int
    runs: tuple[Run, ...]
    batches: tuple[Batch, ...]
    commit_point: int
    leader_end: int
    horizon: int
    round: int
    incarnation: int
    sync: int = 0
    loss_epoch: int = -1


class Ack(_Message, frozen=True):
    """The addressee's log is here durably up to `end`, verified against it. `swapped`: number of the last full copy
    that took the place of the log.
    """

    end: int
    round: int
    incarnation: int
    rebuilding: bool
    sync: int = 0
    swapped: int = 0


class Mismatch(_Message, frozen=True):
    """The append at `start` does not fit: the epoch-cache entry of the sender's log from which to go on."""

    start: int
    end_epoch: int
    end_offset: int
    incarnation: int
    rebuilding: bool
    sync: int = 0


Message: TypeAlias = Question | QuestionAnswer | Seal | Sealed | Refused | Fetch | Fetched | Append | Ack | Mismatch

_OF_ELECTIONS = frozenset((Seal, Sealed, Fetch, Fetched))


def urgency_of(message: Message) -> Urgency:
    """ELECTION for what an election waits for: the seal, its answer, what the best log has more, the first record."""
    if type(message) is Append:
        opens_epoch = bool(message.batches) and message.batches[0].sets is not None
        return Urgency.ELECTION if opens_epoch else Urgency.COMMIT
    return Urgency.ELECTION if type(message) in _OF_ELECTIONS else Urgency.COMMIT


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """MessagePack; batches as they are."""
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Raises msgspec.DecodeError (ValidationError included): the connection is to be closed."""
    return _decoder.decode(data)
