"""Each breaks one rule of replication.md in the protocol core."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.simulation.faults.fault import Fault

from muster_coordinator.replication.commit_point import CommitPoint
from muster_coordinator.replication.context import Context
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.election import Candidate
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.replication.follower import Follower
from muster_coordinator.replication.leader import Leader
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Ack, Append, Mismatch, Sealed
from muster_coordinator.replication.progress import ReplicaProgress
from muster_coordinator.replication.rules import Rules, Verdict
from muster_coordinator.replication.sets import Sets

__all__ = ["RULE_FAULTS"]

_leader_message = Rules.leader_message
_cut_at = Rules.cut_at
_append_range = LogState.append_range
_may_change = Rules.may_change
_promised_leader = Rules.promised_leader
_heard = Leader._heard
_on_ack = Leader.on_ack
_on_sealed = Candidate.on_sealed
_reset = Follower.reset
_note_target = Follower._note_target


def _ignores_promise(self: Rules, promise: Promise, epoch: int, leader: str) -> Verdict:
    verdict = _leader_message(self, promise, epoch, leader)
    return Verdict.TAKE if verdict is Verdict.REFUSE else verdict


def _does_not_raise(self: Rules, promise: Promise, epoch: int, leader: str) -> Verdict:
    verdict = _leader_message(self, promise, epoch, leader)
    return Verdict.TAKE if verdict is Verdict.PROMISE else verdict


def _late_duplicate_cuts(self: Rules, differs_at: int, start: int, end: int, log_end: int, runs: Any) -> int | None:
    return end if start < end < log_end else _cut_at(self, differs_at, start, end, log_end, runs)


def _leads_again(self: Rules, promise: Promise, epoch: int, own: str) -> bool:
    return self.seal(promise, epoch, own) is not Verdict.REFUSE


def _own_longer(self: Rules, common: int, own_end: int, best_end: int) -> int:
    return own_end if own_end > best_end else common


def _stored_at_once(self: Context, promise: Promise, then: Any) -> None:
    _store_promise(self, promise, then)
    self.promise = promise
    then()


_store_promise = Context.store_promise


def _counts_learners(self: CommitPoint, log_id: str, end_offset: int) -> bool:
    if log_id not in self._durable_ends:
        log_id = next(one for one in self._durable_ends if one != self._leader)
    return _acknowledge(self, log_id, end_offset)


_acknowledge = CommitPoint.acknowledge


def _without_horizon(self: LogState, end: int, runs: Any, batches: Any, source_horizon: int) -> None:
    _append_range(self, end, runs, batches, 0)


def _each(self: Rules, call: Sets, chosen: Sets | None) -> tuple[tuple[str, ...], ...]:
    return call.each


def _new_or_legal(self: Rules, chosen: Sets, call: Sets) -> bool:
    return set(call.replicas) == set(chosen.replicas) or _may_change(self, chosen, call)


def _any_change(self: Rules, chosen: Sets, call: Sets) -> bool:
    return True


def _stays_open(self: Rules, promise: Promise, epoch: int, leader: str) -> str:
    return NOBODY if (epoch, NOBODY) == (promise.epoch, promise.leader) else leader


def _keeps_verified(self: Follower) -> None:
    verified = getattr(self, "verified", 0)
    _reset(self)
    self.verified = verified


def _counts_rebuilding_seals(self: Candidate, sealed: Sealed) -> None:
    _on_sealed(self, replace(sealed, rebuilding=False))


def _counts_rebuilding_acks(self: Leader, ack: Ack) -> None:
    _on_ack(self, replace(ack, rebuilding=False))


def _target_of_any_append(self: Follower, message: Append) -> None:
    _note_target(self, replace(message, incarnation=self._context.promise.incarnation))


def _hears_any_incarnation(self: Leader, peer: ReplicaProgress, answer: Ack | Mismatch) -> bool:
    return _heard(self, peer, replace(answer, incarnation=max(answer.incarnation, peer.incarnation)))


_extend_copy = Follower._extend_copy
_UNCHECKED = Fault(0, Context, "check_cut", lambda self, end, loss_epoch: None)


def _takes_any_copy(self: Follower, copy: Any, message: Append) -> None:
    with _UNCHECKED.plant():
        _extend_copy(self, copy, message)


RULE_FAULTS = {
    "no seal": Fault(5, Rules, "is_sealed", lambda self, replicas, sealed: True),
    "older-epoch records counted as committed": Fault(5, Rules, "first_counted", lambda self, start: 0),
    "promise not durable": Fault(5, Rules, "promise_is_stored", lambda self: False),
    "promise is answered before it is durable": Fault(5, Context, "store_promise", _stored_at_once),
    "longest log instead of best": Fault(700, Rules, "log_rank", lambda self, last_epoch, end: (end, last_epoch)),
    "candidate keeps its own longer tail": Fault(1000, Rules, "candidate_end", _own_longer),
    "follower does not truncate": Fault(20, Rules, "cut_at", lambda self, *arguments: None),
    "append does not check the promise": Fault(500, Rules, "leader_message", _ignores_promise),
    "append of a higher epoch does not raise it": Fault(20, Rules, "leader_message", _does_not_raise),
    "leader goes on after its own higher promise": Fault(10, Rules, "promise_ends_leadership", lambda self: False),
    "late duplicate truncates": Fault(5, Rules, "cut_at", _late_duplicate_cuts),
    "late duplicate of a copy replaces the log": Fault(60, Follower, "_shortens", lambda self, copy, loss: False),
    "a copy is compared neither with the log nor with the commit point": Fault(
        60, Follower, "_shortens", lambda self, copy, loss: False, ((Follower, "_extend_copy", _takes_any_copy),)
    ),
    "ack = own log end": Fault(600, Rules, "acked_end", lambda self, verified, durable, log_end: min(durable, log_end)),
    "ack before fsync": Fault(5, Rules, "acked_end", lambda self, verified, durable, log_end: verified),
    "led again in the same epoch after a restart": Fault(20, Rules, "may_lead", _leads_again),
    "leader counts itself before fsync": Fault(5, Rules, "own_end", lambda self, durable, log_end: log_end),
    "learner is counted": Fault(60, CommitPoint, "acknowledge", _counts_learners),
    "set change: seal in the new only": Fault(200, Rules, "sets_to_seal", lambda self, call, chosen: (call.replicas,)),
    "set change: seal in the old only": Fault(
        200, Rules, "sets_to_seal", lambda self, call, chosen: (call.previous_replicas or call.replicas,)
    ),
    "set change: commit in the old only": Fault(
        5, Rules, "sets_to_commit", lambda self, sets: (sets.previous_replicas or sets.replicas,)
    ),
    "previousReplicas forgotten after a crash": Fault(
        60, Rules, "sets_to_seal", _each, ((Rules, "may_change", _new_or_legal),)
    ),
    "illegal transition taken": Fault(5, Rules, "may_change", _any_change),
    "set known to the operator only": Fault(5, Rules, "sets_to_seal", _each, ((Rules, "may_change", _any_change),)),
    "reads not confirmed": Fault(60, Rules, "read_round", lambda self, current: 0),
    "a read is confirmed by what was sent before it": Fault(60, Rules, "read_round", lambda self, current: current),
    "follower's commit point from its own end": Fault(
        100, Rules, "follower_commit_point", lambda self, leader, verified, log_end: min(leader, log_end)
    ),
    "resignation's promise open for ever": Fault(100, Rules, "promised_leader", _stays_open),
    "log that is used is not marked": Fault(100, Rules, "is_marked_used", lambda self, promise: True),
    "seal of a rebuilding replica is counted": Fault(30, Candidate, "on_sealed", _counts_rebuilding_seals),
    "ack of a rebuilding replica is counted": Fault(200, Leader, "on_ack", _counts_rebuilding_acks),
    "rebuilt only to the commit point": Fault(500, Rules, "rebuild_target", lambda self, end, commit: max(commit, 0)),
    "rebuilt to an end of before the loss": Fault(1000, Follower, "_note_target", _target_of_any_append),
    "acks of before a loss stay": Fault(800, CommitPoint, "forget", lambda self, log_id: None),
    "late acks of before a loss count": Fault(1000, Leader, "_heard", _hears_any_incarnation),
    "verified end is kept for the next leader": Fault(800, Follower, "reset", _keeps_verified),
    "end of the epoch before is committed": Fault(10, Rules, "first_counted", lambda self, start: start - 1),
    "tombstone horizon ignored": Fault(50, Rules, "needs_full_copy", lambda self, common, horizon: False),
    "copy forgets the horizon of its source": Fault(200, LogState, "append_range", _without_horizon),
}
