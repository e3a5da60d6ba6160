"""The commit point of a leader: how far a majority of every set holds the log durably.

Pure. A batch is committed when it, or a later batch of the same log, was appended in the leader's own epoch and is
durable on a majority (of both sets while there are two). So the commit point does not move before the epoch's own
first record is on a majority, whatever older records are. Source: replication.md, "Append and commit" and "Sets and
their change".
"""

from __future__ import annotations


class CommitPoint:
    """`offset`: end of what is known to be committed in this epoch; -1 until the first own record is."""

    def __init__(
        self, leader: str, replicas: tuple[str, ...], previous_replicas: tuple[str, ...], epoch_start_offset: int
    ) -> None:
        """`replicas` and `previous_replicas` are log ids; `epoch_start_offset` is the log end at the election."""
        self.offset = -1
        self._leader = leader
        self._epoch_start_offset = epoch_start_offset
        self._sets = tuple(s for s in (replicas, previous_replicas) if s)
        self._durable_ends = {log_id: 0 for one in self._sets for log_id in one}
        self._alone = self._sets == ((leader,),)
        self._final: tuple[int, tuple[tuple[str, ...], ...]] | None = None
        if leader not in replicas and leader not in previous_replicas:
            raise ValueError(f"leader {leader} is in no set: {replicas} {previous_replicas}")

    def acknowledge(self, log_id: str, end_offset: int) -> bool:
        """Replica `log_id` holds the leader's log durably up to `end_offset`. True if the commit point moved.

        Replicas outside the sets (learners) count for nothing. A lower end than before is ignored: acks may arrive
        late.
        """
        ends = self._durable_ends
        known = ends.get(log_id)
        if known is None or end_offset <= known:
            return False
        ends[log_id] = end_offset
        if end_offset <= self.offset:
            return False  # of what is committed already: the slower ones of a majority
        return self._move_to(end_offset if self._alone else min(self._majority_end(one) for one in self._sets))

    def forget(self, log_id: str) -> None:
        """The replica lost data: its earlier acks count no more. What is committed stays committed."""
        if log_id in self._durable_ends:
            self._durable_ends[log_id] = 0

    def finish_change(self, set_record_offset: int, replicas: tuple[str, ...]) -> bool:
        """A set record was appended at `set_record_offset`: it, and all after it, is committed by `replicas`
        alone. True if the commit point moved.
        """
        self._final = (set_record_offset, (replicas,))
        self._durable_ends = dict.fromkeys(replicas, 0) | self._durable_ends
        return self._move_to(min(self._majority_end(one) for one in self._sets))

    def _move_to(self, majority_end: int) -> bool:
        if self._final is not None:
            offset, sets = self._final
            final_end = min(self._majority_end(one) for one in sets)
            if final_end > offset:
                self._sets, self._final = sets, None
                self._durable_ends = {log_id: self._durable_ends[log_id] for log_id in sets[0]}
                self._alone = sets == ((self._leader,),)
                majority_end = final_end
            else:
                majority_end = min(majority_end, offset)
        if majority_end <= self._epoch_start_offset or majority_end <= self.offset:
            return False
        self.offset = majority_end
        return True

    def _majority_end(self, replicas: tuple[str, ...]) -> int:
        return sorted((self._durable_ends[r] for r in replicas), reverse=True)[len(replicas) // 2]
