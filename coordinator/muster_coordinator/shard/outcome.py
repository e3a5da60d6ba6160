"""Outcomes of elections and resignations: one stable code each, with a sentence for people.

The codes are those of the protocol core, which have the names of the pod API's ``CallStatus``.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster_coordinator.replication.effects import Answer
from muster_coordinator.replication.effects import CallStatus as OutcomeCode

__all__ = ["Outcome", "OutcomeCode"]


@dataclass(frozen=True)
class Outcome:
    """``epoch``: the highest that the replica promised by now (-1: none); ``ended_epoch``: of the leadership that a
    resignation ended (-1: this pod did not lead). ``replicas`` and ``previous_replicas``: what the log names, with
    SET_CONFLICT; ``better_log_id``: with BETTER_LOG.
    """

    partition: int
    code: OutcomeCode
    epoch: int = -1
    message: str = ""
    log_id: str = ""
    ended_epoch: int = -1
    end_offset: int = 0
    used: bool = False
    replicas: tuple[str, ...] = ()
    previous_replicas: tuple[str, ...] = ()
    better_log_id: str = ""

    @classmethod
    def of(cls, partition: int, log_id: str, answer: Answer) -> Outcome:
        sets = answer.sets
        return cls(
            partition,
            answer.status,
            answer.epoch,
            answer.message,
            log_id,
            answer.ended_epoch,
            replicas=sets.replicas if sets is not None else (),
            previous_replicas=sets.previous_replicas if sets is not None else (),
            better_log_id=answer.better_log_id,
        )
