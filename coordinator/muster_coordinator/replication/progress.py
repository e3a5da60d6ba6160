"""The progress of one other replica, as its leader knows it.

state      next append                                     leaves it by
streaming  everything new, without waiting for acks        a mismatch -> probing; too long without progress -> probing
probing    an empty append at `next_offset`                an ack -> streaming
copying    chunks from offset 0, for a full copy           an ack that names the swap -> streaming
"""

from __future__ import annotations

from muster_coordinator.replication.messages import Ack


class ReplicaProgress:
    """`match_end`: verified and durable there, -1 unknown; `next_offset`: of the next append; times in ms.

    `caught_up_ms`: the last time at which it is known to have had the leader's whole log (Kafka's lastCaughtUpTimeMs);
    that of its first append until then.
    """

    def __init__(self, log_id: str, next_offset: int, now_ms: int) -> None:
        self.log_id = log_id
        self.next_offset = next_offset
        self.match_end = -1
        self.probing = False
        self.sync = 0  # number of the full copy that is under way
        self.copy_mark = 0  # that of the leader's log when the copy began
        self.reading = False
        self.chunks = 0  # read from the log, sent, and not acked
        self.sent_ms = now_ms
        self.sent_round = -1
        self.acked_round = -1
        self.heard_ms = now_ms
        self.caught_up_ms = now_ms
        self._goal = (next_offset, now_ms)  # an end that the leader's log had, and when
        self.waits_since_ms: int | None = None
        self.incarnation = 0
        self.rebuilding = False
        self.refused = False
        self._last_sync = 0

    def probe(self, offset: int) -> None:
        self.probing = True
        self.chunks = 0
        self.next_offset = offset

    def go_to(self, offset: int) -> None:
        """Go on with a full copy at `offset`."""
        self.chunks = 0
        self.next_offset = offset

    def begin_copy(self, copy_mark: int) -> None:
        """`copy_mark`: of the leader's log. Should it change before all below the horizon is read, the copy begins
        anew.
        """
        self.copy_mark = copy_mark
        self._last_sync += 1
        self.sync = self._last_sync
        self.probing = False
        self.go_to(0)

    def lost_data(self, incarnation: int) -> None:
        """Counts nothing that it acked before."""
        self.incarnation = incarnation
        self.match_end = -1
        self.sync = 0
        self.probe(self.next_offset)

    def take_ack(self, ack: Ack, now_ms: int) -> int:
        """The verified and durable end of its log; -1 if the ack says nothing of that."""
        if ack.sync:
            if ack.sync == self.sync:
                self._progress(now_ms)
            return -1
        if self.sync:
            if ack.swapped != self.sync:
                return -1
            self.sync = 0
            self.go_to(ack.end)
        if self.probing and ack.end >= self.next_offset:
            self.probing = False
        if not self.probing:
            self.next_offset = max(self.next_offset, ack.end)
        if ack.end > self.match_end:
            self.match_end = ack.end
            self._progress(now_ms)
        if self.match_end >= self.next_offset:
            self.waits_since_ms = None
            self.chunks = 0
        return ack.end

    def caught_up(self, end: int, log_end: int, now_ms: int) -> None:
        """Its log was acked up to `end`, and the leader's ends at `log_end`."""
        if end >= log_end:
            self.caught_up_ms = now_ms
        elif end >= self._goal[0]:  # under load there is always something new: it has what was there at the last ack
            self.caught_up_ms = self._goal[1]
        else:
            return
        self._goal = (log_end, now_ms)

    def _progress(self, now_ms: int) -> None:
        self.chunks = max(self.chunks - 1, 0)
        self.waits_since_ms = now_ms

    def is_stuck(self, since_ms: int) -> bool:
        """Something was sent before `since_ms`, and nothing came of it."""
        return self.waits_since_ms is not None and self.waits_since_ms <= since_ms

    def resend(self, epoch_start: int, now_ms: int) -> None:
        """Go back to where the replica is known to match."""
        self.waits_since_ms = now_ms
        self.chunks = 0
        self.reading = False
        if not self.sync:
            self.probe(self.match_end if self.match_end >= 0 else min(self.next_offset, epoch_start))
