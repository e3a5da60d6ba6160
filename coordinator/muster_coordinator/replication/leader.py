"""A replica that leads: pushes its log, counts acks, confirms reads, ends a change of the set.

Appends are pipelined: what was appended in a turn goes to all replicas at the end of that turn, as the same bytes,
before anything is acked. A replica that is behind gets chunks read from the log; one that does not match is probed with
empty appends until it does. Rules: replication.md, "Append and commit", "Reads", "Sets and their change".
"""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.replication.commit_point import CommitPoint
from muster_coordinator.replication.context import Context
from muster_coordinator.replication.effects import (
    Active,
    AppendLeaderChange,
    AppendReplicaSet,
    CommitPointMoved,
    ReadsConfirmed,
    SetFinal,
)
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.replication.messages import Ack, Append, Batch, Mismatch, Refused, Seal
from muster_coordinator.replication.progress import ReplicaProgress
from muster_coordinator.replication.sets import Sets, is_majority
from muster_coordinator.tuning.pacing import Urgency


class Leader:
    """`active`: its leader-change record is committed. `on_end`: called with the reason when it must step down."""

    def __init__(
        self,
        context: Context,
        epoch: int,
        sets: Sets,
        learners: tuple[str, ...],
        on_active: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.epoch = epoch
        self.sets = sets
        self.active = False
        self._context = context
        self._on_active = on_active
        self._on_end = on_end
        self._start = context.log.end
        self._open_at = -1  # end of the leader-change record
        self._set_record_end = -1
        counted = context.rules.sets_to_commit(sets)
        self._commit = CommitPoint(
            context.log_id,
            counted[0],
            counted[1] if len(counted) > 1 else (),
            context.rules.first_counted(self._start),
        )
        self._tail: list[Batch] = []  # appended in this turn
        self._round = 0
        self._reads_wanted = 0
        self._reads_confirmed = 0
        self._learners: tuple[str, ...] = ()
        self._peers: dict[str, ReplicaProgress] = {}
        self.follow_by(learners)

    def open(self) -> None:
        """The epoch begins with a leader-change record that carries the sets."""
        self._context.emit(AppendLeaderChange(self.epoch, self.sets))

    def follow_by(self, learners: tuple[str, ...]) -> None:
        """`learners` get the log as well, and count for nothing."""
        context = self._context
        self._learners = learners
        wanted = [one for one in dict.fromkeys(self.sets.members + learners) if one != context.log_id]
        for log_id in wanted:
            if log_id not in self._peers:
                self._peers[log_id] = ReplicaProgress(log_id, self._start, context.now_ms)
        self._peers = {log_id: self._peers[log_id] for log_id in wanted}

    # -- the log grows ------------------------------------------------------------------------------------------------

    def appended(self, batch: Batch) -> None:
        """The host appended `batch` at the log's end; it is not durable yet."""
        self._context.log.append(batch)
        if self._peers:
            self._tail.append(batch)
        if self._open_at < 0:
            self._open_at = batch.end_offset
        elif batch.sets is not None:
            self._set_record_end = batch.end_offset
            if self._commit.finish_change(batch.base_offset, batch.sets.replicas):
                self._commit_moved()

    def end_turn(self) -> None:
        """Push what was appended; an idle shard with reads that wait sends one empty append for all of them."""
        self.count_own()
        if self._tail or self._reads_wanted > self._round:
            self._round += 1
            for peer in self._peers.values():
                self._push(peer)
                if peer.sent_round < self._round:
                    self._send_empty(peer)
            self._tail.clear()
        if self._reads_wanted > self._reads_confirmed:
            self._confirm_reads()

    def count_own(self) -> None:
        """The leader's own log is durable up to there."""
        context = self._context
        log = context.log
        self._count(context.log_id, context.rules.own_end(log.durable_end, log.end))

    def _count(self, log_id: str, end: int) -> None:
        if self._commit.acknowledge(log_id, end):
            self._commit_moved()

    def _commit_moved(self) -> None:
        offset = self._commit.offset
        context = self._context
        if offset > context.commit_point:
            context.commit_point = offset
            context.emit(CommitPointMoved(offset))
        if not self.active and 0 <= self._open_at <= offset:
            self.active = True
            context.emit(Active(self.epoch))
            self._on_active()
            if self.sets.previous_replicas:
                context.emit(AppendReplicaSet(self.epoch, self.sets.replicas))
        if 0 <= self._set_record_end <= offset:
            self._set_record_end = -1
            self._finish_change()

    def _finish_change(self) -> None:
        """The set record is committed: the new set alone counts."""
        self.sets = Sets(self.sets.replicas, loss_epoch=self.sets.loss_epoch)
        self._context.emit(SetFinal(self.sets.replicas))
        if self._context.log_id not in self.sets.replicas:
            self._on_end("the change of the set is final, and this replica is not in it")
        else:
            self.follow_by(self._learners)
            if not self._peers:
                self._round = max(self._round, self._reads_wanted)
            self._confirm_reads()  # what waits for the old set may have what it needs

    # -- reads --------------------------------------------------------------------------------------------------------

    def confirm_read(self) -> int:
        """A read was received: it may be answered once `ReadsConfirmed` names this round, 0 at once."""
        if not self._peers:
            return 0
        self._reads_wanted = max(self._reads_wanted, self._context.rules.read_round(self._round))
        return self._context.rules.read_round(self._round)

    def _confirm_reads(self) -> None:
        rounds = {peer.log_id: peer.acked_round for peer in self._peers.values()}
        rounds[self._context.log_id] = self._round
        confirmed = min(_majority_value(one, rounds) for one in self.sets.each)
        if confirmed > self._reads_confirmed:
            self._reads_confirmed = confirmed
            self._context.emit(ReadsConfirmed(confirmed))

    # -- what the others say ------------------------------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        peer = self._peers.get(ack.sender)
        if peer is None or not self._heard(peer, ack):
            return
        if not ack.rebuilding and ack.round > peer.acked_round:
            peer.acked_round = ack.round
            if self._reads_wanted > self._reads_confirmed:
                self._confirm_reads()
        context = self._context
        end = peer.take_ack(ack, context.now_ms)
        peer.caught_up(end, context.log.end, context.now_ms)
        if end >= 0 and not ack.rebuilding:
            self._count(peer.log_id, end)
        self._fill(peer)

    def on_mismatch(self, mismatch: Mismatch) -> None:
        peer = self._peers.get(mismatch.sender)
        if peer is None or not self._heard(peer, mismatch):
            return
        if peer.sync or mismatch.sync:
            if peer.sync == mismatch.sync:
                peer.go_to(mismatch.end_offset)
                self._fill(peer)
            return
        if peer.probing and mismatch.start != peer.next_offset:
            return  # of an append that was sent before
        own_end = self._context.log.end_of_epoch(mismatch.end_epoch)[1]
        self._probe(peer, min(own_end, mismatch.end_offset))

    def _probe(self, peer: ReplicaProgress, offset: int) -> None:
        """Find out whether the replica matches at `offset`."""
        if self._lacks_tombstones(peer, offset):
            self._fill(peer)
        else:
            peer.probe(offset)
            self._send_empty(peer)

    def _lacks_tombstones(self, peer: ReplicaProgress, offset: int) -> bool:
        """True if nothing may be sent from `offset` on: then a full copy begins, or begins anew."""
        context = self._context
        if not context.rules.needs_full_copy(offset, context.log.horizon):
            return False
        if peer.sync and peer.copy_mark == context.log.copy_mark:
            return False
        peer.begin_copy(context.log.copy_mark)
        return True

    def _heard(self, peer: ReplicaProgress, answer: Ack | Mismatch) -> bool:
        """False for what an earlier incarnation of that replica sent."""
        if answer.incarnation < peer.incarnation:
            return False
        if answer.incarnation > peer.incarnation:
            peer.lost_data(answer.incarnation)
            self._commit.forget(peer.log_id)
        peer.rebuilding = answer.rebuilding
        if not answer.rebuilding:
            peer.heard_ms = self._context.now_ms
        return True

    def on_refused(self, refused: Refused) -> None:
        """A resigned replica that promised this epoch to no replica takes a seal. One that promised a higher one, or
        this one to another, is lost to this leader until an election in a higher epoch.
        """
        peer = self._peers.get(refused.sender)
        if peer is None or refused.refused_epoch != self.epoch:
            return
        context = self._context
        if refused.epoch == self.epoch and refused.leader == NOBODY:
            context.send(Seal(context.log_id, refused.sender, self.epoch))
        elif refused.epoch >= self.epoch:
            peer.refused = True
            takers = {one.log_id for one in self._peers.values() if not one.refused} | {context.log_id}
            if not all(is_majority(one, takers) for one in self.sets.each):
                self._on_end(f"a majority promised epoch {refused.epoch} or another one")

    @property
    def is_alone(self) -> bool:
        """It is its whole set, and there are no learners."""
        return not self._peers

    @property
    def followers(self) -> tuple[tuple[str, int, bool], ...]:
        """(log id, verified and durable end or -1, rebuilding) of each."""
        return tuple((peer.log_id, peer.match_end, peer.rebuilding) for peer in self._peers.values())

    def longest_behind_ms(self, now_ms: int) -> int:
        """Returns for how long (ms) a follower has lacked something of the log: the longest; 0 if none does."""
        end = self._context.log.end
        behind = [now_ms - peer.caught_up_ms for peer in self._peers.values() if peer.match_end < end]
        return max(behind, default=0)

    @property
    def is_refused(self) -> bool:
        """Some replica is lost to this leader: see `on_refused`."""
        return any(peer.refused for peer in self._peers.values())

    def on_sealed(self, log_id: str) -> None:
        """A replica filled its open promise with this leader, or answers late: go on with it."""
        peer = self._peers.get(log_id)
        if peer is not None and peer.match_end < 0 and not peer.sync:
            peer.probe(peer.next_offset)
            self._send_empty(peer)

    # -- sending ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send heartbeats, send lost messages again, and step down if no majority answers."""
        context = self._context
        now_ms, settings = context.now_ms, context.settings
        if not self._peers:
            return
        heard = {p.log_id for p in self._peers.values() if now_ms - p.heard_ms < settings.leader_timeout_ms}
        heard.add(context.log_id)
        if not all(is_majority(one, heard) for one in self.sets.each):
            self._on_end(f"no majority was heard for {settings.leader_timeout_ms} ms")
            return
        if self._reads_wanted > self._round:
            self._round += 1
        for peer in self._peers.values():
            if peer.is_stuck(now_ms - settings.resend_ms):
                peer.resend(self._start, now_ms)
                self._send_empty(peer)
            elif now_ms - peer.sent_ms >= settings.heartbeat_ms or peer.sent_round < self._reads_wanted:
                self._send_empty(peer)

    def _push(self, peer: ReplicaProgress) -> None:
        """Send the batches that were appended in this turn if the replica needs them next; else read for it."""
        tail = self._tail
        if tail and not peer.probing and not peer.sync and not peer.reading and peer.next_offset == tail[0].base_offset:
            self._send(peer, peer.next_offset, tail[-1].end_offset, tuple(tail))
        else:
            self._fill(peer)

    def _fill(self, peer: ReplicaProgress) -> None:
        """Read and send what the replica lacks, a chunk at a time."""
        context = self._context
        if peer.probing or peer.reading or peer.next_offset >= context.log.end:
            return
        if peer.chunks >= context.settings.chunks_in_flight_max:
            return
        self._lacks_tombstones(peer, peer.next_offset)
        start, sync = peer.next_offset, peer.sync
        peer.reading = True

        def read(end: int, batches: tuple[Batch, ...]) -> None:
            peer.reading = False
            moved = peer.probing or (peer.next_offset, peer.sync) != (start, sync)
            if moved or self._lacks_tombstones(peer, start):  # the log was cleaned meanwhile
                self._fill(peer)
            elif end > start:
                peer.chunks += 1
                self._send(peer, start, end, batches)
                self._fill(peer)

        urgency = Urgency.BACKGROUND if self.active else Urgency.ELECTION
        context.read(start, context.settings.append_bytes_max, read, urgency=urgency)

    def _send(self, peer: ReplicaProgress, start: int, end: int, batches: tuple[Batch, ...]) -> None:
        context = self._context
        log = context.log
        if end > start:
            peer.next_offset = end
            if peer.waits_since_ms is None:
                peer.waits_since_ms = context.now_ms
        peer.sent_ms = context.now_ms
        peer.sent_round = self._round
        context.send(
            Append(
                context.log_id,
                peer.log_id,
                self.epoch,
                start=start,
                end=end,
                previous_epoch=log.epoch_before(start),
                runs=log.runs(start, end),
                batches=batches,
                commit_point=self._commit.offset,
                leader_end=log.end,
                horizon=log.horizon,
                round=self._round,
                incarnation=peer.incarnation,
                sync=peer.sync,
                loss_epoch=self.sets.loss_epoch,
            )
        )

    def _send_empty(self, peer: ReplicaProgress) -> None:
        """Send a message without batches, at the end that is known to match or, with none known, at the next offset."""
        start = peer.next_offset if peer.probing or peer.match_end < 0 or peer.sync else peer.match_end
        self._send(peer, start, start, ())


def _majority_value(replicas: tuple[str, ...], values: dict[str, int]) -> int:
    """The highest value that a majority of `replicas` has reached; -1 counts for a replica without a value."""
    return sorted((values.get(one, -1) for one in replicas), reverse=True)[len(replicas) // 2]
