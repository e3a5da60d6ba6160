"""Outcomes of elections and resignations: one stable code each, with a sentence for people.

The names are those of the pod API's ``CallStatus``, which the server maps them to.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OutcomeCode(StrEnum):
    ACCEPTED = "accepted"
    LOADING = "loading"
    STALE_EPOCH = "staleEpoch"
    WRONG_REPLICA = "wrongReplica"
    CANNOT_WRITE = "cannotWrite"
    DAMAGED = "damaged"
    INVALID = "invalid"


@dataclass(frozen=True)
class Outcome:
    """``epoch``: the highest that the replica promised by now (-1: none); ``ended_epoch``: of the leadership that a
    resignation ended (-1: this pod did not lead)."""

    partition: int
    code: OutcomeCode
    epoch: int = -1
    message: str = ""
    log_id: str = ""
    ended_epoch: int = -1
    end_offset: int = 0
    used: bool = False
