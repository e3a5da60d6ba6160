"""The answers of a shard that wait until what they show cannot be lost any more (Kafka: deferred events).

An answer waits until the commit point has passed the log end that it depends on. An answer without records of its own
also waits for a read round: a majority has confirmed that this replica still leads.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.shard.ports import Answer


class ParkedAnswers:
    """`queue` holds (log end, read round, request, response), in the order of the log. Only `Shard` appends to it.

    `high_watermark` is the commit point, -1 before the epoch is open.
    """

    def __init__(self) -> None:
        self.queue: deque[tuple[int, int, Answer, Any]] = deque()
        self.high_watermark = -1
        self._confirmed_round = 0
        self._turns: deque[tuple[int, int, int]] = deque()  # (log end, read round, monotonic ms), one per turn

    def turn_ended(self, monotonic_ms: int) -> None:
        """A turn that began at `monotonic_ms` has parked answers. Send those that wait for nothing."""
        queue = self.queue
        self._turns.append((queue[-1][0], queue[-1][1], monotonic_ms))
        if queue[0][0] <= self.high_watermark:
            self.release()

    def committed(self, end_offset: int) -> None:
        """All below `end_offset` is committed."""
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            self.release()

    def reads_confirmed(self, read_round: int) -> None:
        """A majority has confirmed this round and the rounds before it."""
        self._confirmed_round = read_round
        self.release()

    def release(self) -> None:
        """Send every answer whose log end is committed and whose reads are confirmed."""
        committed, confirmed = self.high_watermark, self._confirmed_round
        queue = self.queue
        while queue and queue[0][0] <= committed and queue[0][1] <= confirmed:
            _, _, request, response = queue.popleft()
            request.answer(response)
        turns = self._turns
        while turns and turns[0][0] <= committed and turns[0][1] <= confirmed:
            turns.popleft()

    def wait_for(self, opened: int) -> None:
        """Reads wait for the log end `opened` instead of a round: rounds start again at 0 in the next epoch."""
        self._confirmed_round = 0
        self.queue = deque((opened if read_round else end, 0, *rest) for end, read_round, *rest in self.queue)
        self._turns = deque((opened if read_round else end, 0, ms) for end, read_round, ms in self._turns)

    def refuse_older(self, limit_ms: int, code: ErrorCode) -> int:
        """Refuse the answers of turns that began before `limit_ms` of the monotonic clock. Returns how many."""
        turns = self._turns
        overdue_end = overdue_round = -1
        while turns and turns[0][2] < limit_ms:
            overdue_end, read_round, _ = turns.popleft()
            overdue_round = max(overdue_round, read_round)
        queue, refused = self.queue, 0
        while queue and queue[0][0] <= overdue_end and queue[0][1] <= overdue_round:
            queue.popleft()[2].refuse(code)
            refused += 1
        return refused

    def refuse_all(self, code: ErrorCode) -> None:
        """The shard stops serving."""
        queue, self.queue = self.queue, deque()
        self._turns.clear()
        for _, _, request, _ in queue:
            request.refuse(code)
