"""Planted faults of the protocol: each breaks one rule of replication.md in the core of real pods."""

from __future__ import annotations

from typing import Any

from tests.simulation.host_faults import HostFault

from muster_coordinator.replication.commit_point import CommitPoint
from muster_coordinator.replication.context import Context
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.follower import Follower
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.rules import Rules, Verdict
from muster_coordinator.replication.sets import Sets

__all__ = ["RULE_FAULTS"]

_leader_message = Rules.leader_message
_cut_at = Rules.cut_at
_append_range = LogState.append_range
_may_change = Rules.may_change


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


RULE_FAULTS = {
    "no seal": HostFault(5, Rules, "is_sealed", lambda self, replicas, sealed: True),
    "older-epoch records counted as committed": HostFault(5, Rules, "first_counted", lambda self, start: 0),
    "promise not durable": HostFault(5, Rules, "promise_is_stored", lambda self: False),
    "promise is answered before it is durable": HostFault(5, Context, "store_promise", _stored_at_once),
    "longest log instead of best": HostFault(700, Rules, "log_rank", lambda self, last_epoch, end: (end, last_epoch)),
    "candidate keeps its own longer tail": HostFault(1000, Rules, "candidate_end", _own_longer),
    "follower does not truncate": HostFault(20, Rules, "cut_at", lambda self, *arguments: None),
    "append does not check the promise": HostFault(500, Rules, "leader_message", _ignores_promise),
    "append of a higher epoch does not raise it": HostFault(20, Rules, "leader_message", _does_not_raise),
    "leader goes on after its own higher promise": HostFault(10, Rules, "promise_ends_leadership", lambda self: False),
    "late duplicate truncates": HostFault(5, Rules, "cut_at", _late_duplicate_cuts),
    "late duplicate of a copy replaces the log": HostFault(60, Follower, "_shortens", lambda self, copy: False),
    "ack = own log end": HostFault(
        600, Rules, "acked_end", lambda self, verified, durable, log_end: min(durable, log_end)
    ),
    "ack before fsync": HostFault(5, Rules, "acked_end", lambda self, verified, durable, log_end: verified),
    "led again in the same epoch after a restart": HostFault(20, Rules, "may_lead", _leads_again),
    "leader counts itself before fsync": HostFault(5, Rules, "own_end", lambda self, durable, log_end: log_end),
    "learner is counted": HostFault(60, CommitPoint, "acknowledge", _counts_learners),
    "set change: seal in the new only": HostFault(
        200, Rules, "sets_to_seal", lambda self, call, chosen: (call.replicas,)
    ),
    "set change: seal in the old only": HostFault(
        5, Rules, "sets_to_seal", lambda self, call, chosen: (call.previous_replicas or call.replicas,)
    ),
    "set change: commit in the old only": HostFault(
        5, Rules, "sets_to_commit", lambda self, sets: (sets.previous_replicas or sets.replicas,)
    ),
    "previousReplicas forgotten after a crash": HostFault(
        60, Rules, "sets_to_seal", _each, ((Rules, "may_change", _new_or_legal),)
    ),
    "illegal transition taken": HostFault(5, Rules, "may_change", _any_change),
    "set known to the operator only": HostFault(5, Rules, "sets_to_seal", _each, ((Rules, "may_change", _any_change),)),
    "reads not confirmed": HostFault(1000, Rules, "read_round", lambda self, current: 0),
    "tombstone horizon ignored": HostFault(50, Rules, "needs_full_copy", lambda self, common, horizon: False),
    "copy forgets the horizon of its source": HostFault(10, LogState, "append_range", _without_horizon),
}
