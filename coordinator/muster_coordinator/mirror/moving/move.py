"""The steps of one group's move, as the leader of its partition takes them. Its memory only: a move that is not decided
leaves nothing behind."""

from __future__ import annotations

from enum import Enum

from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.requests.moving import Fence


class Step(Enum):
    WAITING = "waiting"
    DRAINING = "draining"
    READING = "reading"
    PASSING = "passing"
    WRITING = "writing"
    COMPARING = "comparing"
    DECIDING = "deciding"
    MOVED = "moved"
    GIVEN_UP = "given up"


_UNFENCED = (Step.WAITING, Step.MOVED, Step.GIVEN_UP)
_OVER = (Step.DECIDING, Step.MOVED, Step.GIVEN_UP)
"""Nothing but the log can say any more what becomes of the move."""


class Task(Enum):
    """The leader's next step."""

    READ_END = "ask a broker for the end of the partition, now"
    WRITE = "write the group's offsets to Kafka"
    COMPARE = "ask Kafka for the group and its offsets"
    DECIDE = "append the group's route"


class Move:
    """`number`: of the fence, another one for each move under a leader. `wait_ms`, `fence_ms`: how long the mirror may
    need before the fence, and the fence may stand."""

    def __init__(self, group_id: str, number: int, wait_ms: int, fence_ms: int, now_ms: int) -> None:
        self.step = Step.WAITING
        self.reason = ""
        """The reason why it was given up."""
        self.number = number
        self._fence = Fence(group_id, number)
        self._fence_ms = fence_ms
        self._until_ms = now_ms + wait_ms
        self._end = -1

    @property
    def end(self) -> int:
        """The end of Kafka's partition as it was behind the fence; -1: nobody has said it yet."""
        return self._end

    @property
    def fence(self) -> Fence | None:
        """The fence that leases name; None: there is none."""
        return None if self.step in _UNFENCED else self._fence

    def look(self, leases: Leases, position: int, complete: bool, open_transactions: bool, now_ms: int) -> Task | None:
        """Call it when something has changed, and when time has passed. `position`: offset up to which the mirror has
        read, and `complete`: whether it was at the end once; of committed records. `open_transactions`: the group has
        offsets that are pending."""
        if self._has_ended(now_ms):
            pass
        elif self.step is Step.WAITING and complete and leases.are_known(now_ms):
            self._put_fence(now_ms)
        elif self.step is Step.DRAINING and leases.are_drained(self.number, now_ms):
            self.step = Step.READING
            return Task.READ_END
        elif self.step is Step.PASSING and position >= self._end and not open_transactions:
            self.step = Step.COMPARING
            return Task.COMPARE
        return None

    def _has_ended(self, now_ms: int) -> bool:
        """Give up what takes too long. Returns whether nothing is left to be done here."""
        if self.step not in _OVER and now_ms >= self._until_ms:
            self.give_up(f"it took too long: {self.step.value}")
        return self.step in _OVER

    def _put_fence(self, now_ms: int) -> None:
        self.step = Step.DRAINING
        self._until_ms = now_ms + self._fence_ms

    def end_read(self, end: int) -> None:
        """A broker that was asked in `READING` has answered: the offset after the last record."""
        if self.step is Step.READING:
            self._end = end
            self.step = Step.PASSING

    def compared(self, difference: str) -> Task | None:
        """`difference`: between what Kafka has answered and what the mirror has now; "": there is none. The route is
        to be appended before anything else is."""
        if self.step is not Step.COMPARING:
            return None
        if difference:
            self.give_up(f"Kafka and the mirror differ: {difference}")
            return None
        self.step = Step.DECIDING
        return Task.DECIDE

    def decided(self) -> None:
        """The route is committed."""
        self.step = Step.MOVED

    def give_up(self, reason: str) -> bool:
        """Returns whether the move is given up; not once its route was appended."""
        if self.step in _OVER:
            return False
        self.step = Step.GIVEN_UP
        self.reason = reason
        return True
