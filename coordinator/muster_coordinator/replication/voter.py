"""The answers of a replica to candidates and leaders that read its log: seals, questions, fetches.

Rules: replication.md, "Election" (1 to 3), "Compaction and checkpoints".
"""

from __future__ import annotations

from muster_coordinator.replication.context import Context
from muster_coordinator.replication.messages import Batch, Fetch, Fetched, Question, QuestionAnswer, Seal, Sealed
from muster_coordinator.tuning.pacing import Urgency


def answer_seal(context: Context, message: Seal) -> None:
    """The promise is durable. `rebuilding` says that this seal must not be counted."""
    log = context.log
    context.send(
        Sealed(
            context.log_id,
            message.sender,
            message.epoch,
            end_offset=log.end,
            runs=log.runs(0, log.end),
            sets=log.sets,
            sets_offset=log.sets_offset,
            horizon=log.horizon,
            rebuilding=context.promise.rebuilding,
            incarnation=context.promise.incarnation,
            loss_epoch=log.loss_epoch,
        )
    )


def answer_question(context: Context, message: Question, live_leader: str) -> None:
    """Answer without a durable effect. A log is better by the rule of the best log."""
    rank = context.rules.log_rank
    context.send(
        QuestionAnswer(
            context.log_id,
            message.sender,
            context.promise.epoch,
            ticket=message.ticket,
            live_leader=live_leader,
            better=rank(context.log.last_epoch, context.log.end) > rank(message.last_epoch, message.end_offset),
            counts=not context.promise.rebuilding,
        )
    )


def answer_fetch(context: Context, message: Fetch) -> None:
    """A chunk of the log, or nothing where it does not reach so far (any more)."""
    copy_mark = context.log.copy_mark

    def read(end: int, batches: tuple[Batch, ...]) -> None:
        log = context.log
        if log.copy_mark != copy_mark:  # it was cleaned meanwhile: what of that was read is not known
            answer_fetch(context, message)
            return
        context.send(
            Fetched(
                context.log_id,
                message.sender,
                message.epoch,
                start=message.start,
                end=end,
                previous_epoch=log.epoch_before(message.start),
                runs=log.runs(message.start, end),
                batches=batches,
                horizon=log.horizon,
                copy_mark=log.copy_mark,
            )
        )

    if message.start < context.log.end:
        context.read(message.start, message.bytes_max, read, urgency=Urgency.ELECTION)
    else:
        read(message.start, ())
