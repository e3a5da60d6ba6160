"""A replica that takes what its promised leader sends.

Rules: replication.md, "Append and commit", "Loss, rebuild, start-up", "Compaction and checkpoints".
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from muster_coordinator.replication.context import Context
from muster_coordinator.replication.effects import (
    AppendRange,
    CommitPointMoved,
    StartCopy,
    SwapCopy,
)
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Ack, Append, Batch, Mismatch, Run


@dataclass
class _Copy:
    """A full copy next to the log. `target`: the leader's log end when the copying began."""

    number: int
    target: int
    log: LogState


class Follower:
    """`verified`: end of what matches the log of the promised leader."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.heard_ms: int | None = None  # the promised leader, at last
        self.reset()

    def reset(self) -> None:
        """Another epoch is promised: nothing is verified against its leader yet."""
        self.verified = 0
        self._source = (-1, "")  # (epoch, leader) of the last append
        self._round = -1
        self._leader_commit_point = -1
        self._ack_due = False
        self._rebuild_target: int | None = None
        self._copy: _Copy | None = None
        self._swapped = 0
        self.heard_ms = None

    def live_leader(self) -> str:
        """The promised leader if it was heard lately, else ""."""
        context = self._context
        if self.heard_ms is None or context.now_ms - self.heard_ms >= context.settings.leader_timeout_ms:
            return ""
        return context.promise.leader

    # -- appends ------------------------------------------------------------------------------------------------------

    def on_append(self, message: Append) -> None:
        """The sender and its epoch are what this replica promised."""
        self.heard_ms = self._context.now_ms
        self._source = message.epoch, message.sender
        self._round = max(self._round, message.round)
        if message.sync:
            self._take_copy(message)
            return
        context = self._context
        log = context.log
        if message.start > log.end or log.epoch_before(message.start) != message.previous_epoch:
            self._mismatch(message, *log.entry_for(message.start, message.previous_epoch))
            return
        differs_at = log.agreement(message.start, message.end, message.runs)
        cut = context.rules.cut_at(differs_at, message.start, message.end, log.end, message.runs)
        if cut is None:
            self._append(message)
        else:
            context.cut(cut, message.loss_epoch, lambda: self._append(message))

    def _append(self, message: Append) -> None:
        context = self._context
        extend_log(context, context.log, message.end, message.runs, message.batches, message.horizon)
        self.verified = max(self.verified, message.end)
        self._leader_commit_point = max(self._leader_commit_point, message.commit_point)
        self._note_target(message)
        self._move_commit_point()
        self._ack_due = True
        self.progress()

    def _move_commit_point(self) -> None:
        context = self._context
        offset = context.rules.follower_commit_point(self._leader_commit_point, self.verified, context.log.end)
        if offset > context.commit_point:
            context.commit_point = offset
            context.emit(CommitPointMoved(offset))

    def progress(self) -> None:
        """Something was verified, or became durable: ack what is both, when all of it is."""
        context = self._context
        if not self._ack_due or context.waiting is not None:
            return
        end = self._acked_end()
        if end < self.verified:
            return
        self._ack_due = False
        if self._rebuild_target is not None and end >= self._rebuild_target:
            self._rebuilt()
        else:
            self._ack()

    def _acked_end(self) -> int:
        log = self._context.log
        return self._context.rules.acked_end(self.verified, log.durable_end, log.end)

    def _ack(self, sync: int = 0, end: int | None = None) -> None:
        """`sync` and `end`: of a copy beside the log, which counts for nothing yet. The first ack of a record waits
        until the log is marked as used, durably.
        """
        context = self._context
        promise = context.promise
        if not sync and self._acked_end() > 0 and not context.rules.is_marked_used(promise):
            context.store_promise(replace(promise, used=True), self._ack)
            return
        epoch, leader = self._source
        context.send(
            Ack(
                context.log_id,
                leader,
                epoch,
                end=self._acked_end() if end is None else end,
                round=self._round,
                incarnation=promise.incarnation,
                rebuilding=promise.rebuilding,
                sync=sync,
                swapped=self._swapped,
            )
        )

    def _mismatch(self, message: Append, end_epoch: int, end_offset: int) -> None:
        """Nothing was changed."""
        context = self._context
        context.send(
            Mismatch(
                context.log_id,
                message.sender,
                message.epoch,
                start=message.start,
                end_epoch=end_epoch,
                end_offset=max(end_offset, 0),
                incarnation=context.promise.incarnation,
                rebuilding=context.promise.rebuilding,
                sync=message.sync,
            )
        )

    # -- rebuilding ---------------------------------------------------------------------------------------------------

    def _note_target(self, message: Append) -> None:
        """An append that names this incarnation was sent after the flag was set: its log end is what to reach."""
        context = self._context
        promise = context.promise
        if promise.rebuilding and self._rebuild_target is None and message.incarnation == promise.incarnation:
            self._rebuild_target = context.rules.rebuild_target(message.leader_end, message.commit_point)

    def _rebuilt(self) -> None:
        """The log, fsynced, has all that may have been acked here before: from now on the replica counts again."""
        self._rebuild_target = None
        promise = self._context.promise
        self._context.store_promise(replace(promise, rebuilding=False, used=True), self._ack)

    # -- a full copy next to the log ----------------------------------------------------------------------------------

    def _take_copy(self, message: Append) -> None:
        """Take a chunk of a full copy. Until the swap the old log counts and votes."""
        if message.sync <= self._swapped:
            self._ack()
            return
        copy = self._copy
        if copy is not None and copy.number == message.sync:
            self._extend_copy(copy, message)
            return
        if message.start != 0:
            self._mismatch(message, -1, 0)
            return

        def begun() -> None:
            self._copy = _Copy(message.sync, message.leader_end, LogState())
            self._extend_copy(self._copy, message)

        self._context.store(StartCopy(), begun)

    def _extend_copy(self, copy: _Copy, message: Append) -> None:
        context = self._context
        if message.start > copy.log.end:
            self._mismatch(message, -1, copy.log.end)
            return
        extend_log(context, copy.log, message.end, message.runs, message.batches, message.horizon, to_copy=True)
        if copy.log.end < copy.target:
            self._ack(sync=copy.number, end=copy.log.end)
            return
        if self._shortens(copy, message.loss_epoch):
            self._copy = None
            self._swapped = copy.number
            self._ack()
            return
        context.check_cut(context.log.agreement(0, copy.log.end, copy.log.runs(0, copy.log.end)), message.loss_epoch)

        def swapped() -> None:
            context.replace_log(copy.log)
            self._copy = None
            self._swapped = copy.number
            self.verified = copy.log.end
            self._move_commit_point()
            self._ack_due = True
            self.progress()

        context.store(SwapCopy(), swapped)

    def _shortens(self, copy: _Copy, loss_epoch: int) -> bool:
        """The log holds more than the copy, so that a swap would lose what was acked from it.

        Late duplicates of a copy that an earlier process swapped in arrive as a new copy. A leader's own new copy never
        ranks below an intact log of its follower: it ends at least with the record that opened the leader's epoch.
        """
        context, log = self._context, self._context.log
        if not context.may_cut(copy.log.end, loss_epoch):
            return True
        return not context.promise.rebuilding and (copy.log.last_epoch, copy.log.end) < (log.last_epoch, log.end)


def extend_log(
    context: Context,
    log: LogState,
    end: int,
    runs: tuple[Run, ...],
    batches: tuple[Batch, ...],
    source_horizon: int,
    *,
    to_copy: bool = False,
) -> None:
    """Append what is new of a range that fits; batches that are already there are skipped."""
    if end <= log.end:
        return
    fresh = batches
    if batches and batches[0].base_offset < log.end:
        fresh = tuple([batch for batch in batches if batch.base_offset >= log.end])
    log.append_range(end, runs, fresh, source_horizon)
    context.emit(AppendRange(end, fresh, log.horizon, to_copy))
