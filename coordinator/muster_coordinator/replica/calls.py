"""Elections and resignations: those that wait, and their outcomes, one stable code each with a sentence for people.

The codes are those of the protocol core, which have the names of the pod API's ``CallStatus``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from muster_coordinator.replication.effects import Answer
from muster_coordinator.replication.effects import CallStatus as OutcomeCode

__all__ = ["Outcome", "OutcomeCode", "PendingCalls"]


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


class PendingCalls:
    """Calls that a replica's core was given, by number."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._last = 0

    def begin(self) -> tuple[int, asyncio.Future[Answer]]:
        """(number of the call, its answer)."""
        self._last += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = answer
        return self._last, answer

    def end(self, answer: Answer) -> None:
        waiting = self._waiting.pop(answer.call, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end_all(self, status: OutcomeCode, epoch: int, message: str) -> None:
        """The core was given up."""
        for call in tuple(self._waiting):
            self.end(Answer(call, status, epoch, message))
