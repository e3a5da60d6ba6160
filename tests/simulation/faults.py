"""Planted faults: each breaks one rule, and simulation must notice. So must defects of the host: the canaries.

``FAULTS``: name, as in the list of replication.md -> what to run. ``seeds``: within so many the fault is caught;
``options``: what those runs have more of, so that the fault can bite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from tests.simulation import profiles
from tests.simulation.options import Options, draw_options
from tests.simulation.replica import Replica
from tests.simulation.shard import Request
from tests.simulation.simulator import Outcome, simulate

from muster_coordinator.groups.effects import session_timer
from muster_coordinator.records.group_metadata import GroupMetadataRecord
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.replication.messages import Ack, Message, Run, Sealed
from muster_coordinator.replication.rules import Rules, Verdict
from muster_coordinator.replication.sets import Sets
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.ports import NO_PRODUCER
from muster_coordinator.state_machine import Record

__all__ = ["CANARIES", "FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    seeds: int
    rules: Callable[[], Rules] = Rules
    replica_class: type[Replica] = Replica
    options: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    def draw(self, seed: int) -> Options:
        return replace(draw_options(seed), **self.options)

    def run(self, options: Options) -> Outcome:
        """Raises Failure."""
        return simulate(options, self.rules(), self.replica_class)


class NoSeal(Rules):
    def is_sealed(self, replicas: tuple[str, ...], sealed: int) -> bool:
        return True


class OlderEpochsCommitted(Rules):
    def first_counted(self, epoch_start: int) -> int:
        return 0


class PromiseNotDurable(Rules):
    def promise_is_stored(self) -> bool:
        return False


class LongestLog(Rules):
    def log_rank(self, last_epoch: int, end: int) -> tuple[int, int]:
        return end, last_epoch


class KeepsLongerTail(Rules):
    def candidate_end(self, common: int, own_end: int, best_end: int) -> int:
        return own_end if own_end > best_end else common


class FollowerDoesNotTruncate(Rules):
    def cut_at(self, differs_at: int, start: int, end: int, log_end: int, runs: tuple[Run, ...]) -> int | None:
        return None


class AppendIgnoresPromise(Rules):
    def leader_message(self, promise: Promise, epoch: int, leader: str) -> Verdict:
        verdict = super().leader_message(promise, epoch, leader)
        return Verdict.TAKE if verdict is Verdict.REFUSE else verdict


class AppendDoesNotRaise(Rules):
    def leader_message(self, promise: Promise, epoch: int, leader: str) -> Verdict:
        verdict = super().leader_message(promise, epoch, leader)
        return Verdict.TAKE if verdict is Verdict.PROMISE else verdict


class PromisedLeaderIgnored(Rules):
    def seal(self, promise: Promise, epoch: int, leader: str) -> Verdict:
        return Verdict.PROMISE if epoch == promise.epoch >= 0 else super().seal(promise, epoch, leader)


class LeaderGoesOn(Rules):
    def promise_ends_leadership(self) -> bool:
        return False


class LateDuplicateTruncates(Rules):
    def cut_at(self, differs_at: int, start: int, end: int, log_end: int, runs: tuple[Run, ...]) -> int | None:
        return end if start < end < log_end else super().cut_at(differs_at, start, end, log_end, runs)


class AcksOwnLogEnd(Rules):
    def acked_end(self, verified: int, durable: int, log_end: int) -> int:
        return min(durable, log_end)


class CommitsOwnEnd(Rules):
    def follower_commit_point(self, leader_commit_point: int, verified: int, log_end: int) -> int:
        return min(leader_commit_point, log_end)


class LeadsAgain(Rules):
    def may_lead(self, promise: Promise, epoch: int, own: str) -> bool:
        return self.seal(promise, epoch, own) is not Verdict.REFUSE


class ResignationStaysOpen(Rules):
    def promised_leader(self, promise: Promise, epoch: int, leader: str) -> str:
        return NOBODY if (epoch, NOBODY) == (promise.epoch, promise.leader) else leader


class AcksBeforeFsync(Rules):
    def acked_end(self, verified: int, durable: int, log_end: int) -> int:
        return verified


class LeaderCountsBeforeFsync(Rules):
    def own_end(self, durable: int, log_end: int) -> int:
        return log_end


class RebuiltToCommitPoint(Rules):
    def rebuild_target(self, leader_end: int, commit_point: int) -> int:
        return max(commit_point, 0)


class UsedIsNotMarked(Rules):
    def is_marked_used(self, promise: Promise) -> bool:
        return True


class SealsInTheNewOnly(Rules):
    def sets_to_seal(self, call: Sets, chosen: Sets | None) -> tuple[tuple[str, ...], ...]:
        return (call.replicas,)


class SealsInTheOldOnly(Rules):
    def sets_to_seal(self, call: Sets, chosen: Sets | None) -> tuple[tuple[str, ...], ...]:
        return (call.previous_replicas or call.replicas,)


class CommitsInTheOldOnly(Rules):
    def sets_to_commit(self, sets: Sets) -> tuple[tuple[str, ...], ...]:
        return (sets.previous_replicas or sets.replicas,)


class PreviousForgotten(Rules):
    """A crash between record and clearing: the call names the new set alone, and is taken."""

    def sets_to_seal(self, call: Sets, chosen: Sets | None) -> tuple[tuple[str, ...], ...]:
        return call.each

    def may_change(self, chosen: Sets, call: Sets) -> bool:
        return set(call.replicas) == set(chosen.replicas) or super().may_change(chosen, call)


class IllegalTransition(Rules):
    def may_change(self, chosen: Sets, call: Sets) -> bool:
        return True


class SetKnownToTheOperatorOnly(IllegalTransition):
    def sets_to_seal(self, call: Sets, chosen: Sets | None) -> tuple[tuple[str, ...], ...]:
        return call.each


class ReadsNotConfirmed(Rules):
    def read_round(self, current: int) -> int:
        return 0


class HorizonIgnored(Rules):
    def needs_full_copy(self, common: int, horizon: int) -> bool:
        return False


class CheckpointAboveCommitPoint(Rules):
    def checkpoint_limit(self, commit_point: int, log_end: int) -> int:
        return log_end


class CheckpointBelowHorizon(Rules):
    def checkpoint_fits(self, offset: int, epoch: int, epoch_before: int, log_end: int, horizon: int) -> bool:
        return super().checkpoint_fits(offset, epoch, epoch_before, log_end, 0)


class EmptiedLogVotes(Replica):
    """What was lost is not noticed: the replica votes with what is left, under the same log id."""

    def start(self) -> None:
        self.storage.lost = ""
        super().start()


class EmptiedByPowerLossVotes(Replica):
    """A log of which nothing is left counts as one that was never used."""

    def start(self) -> None:
        if self.storage.durable.end == 0:
            self.storage.power_lost = False
        super().start()


class AnswersCommitsAtOnce(Replica):
    """Those of simple groups, before anything is done."""

    def _request(self, request: Request) -> None:
        message = request.message
        if isinstance(message, m.OffsetCommitRequest) and not message.member_id and self.shard is not None:
            request.answer(m.OffsetCommitResponse((("t", ((0, 0),)),)))
        super()._request(request)


class AnswersBeforeTheCommit(Replica):
    """All that is in memory counts as committed."""

    def append_own(
        self, records: list[Record], now_ms: int, producer: tuple[int, int] = NO_PRODUCER, *, control: bool = False
    ) -> None:
        super().append_own(records, now_ms, producer, control=control)
        if self.shard is not None:
            self.shard.committed(self.log.end)


class ForgetsMembers(Replica):
    """A new leader loads groups without their members."""

    def _replay(self, end: int) -> None:
        super()._replay(end)
        for group in self.machine.coordinator.durable_state().groups:
            self.machine.coordinator.replay(GroupMetadataRecord(group, None), 0, 0)


class EndsSessionsEarly(Replica):
    """A new leader does not give members a whole session."""

    def _one(self, effect: fx.Effect) -> None:
        super()._one(effect)
        if isinstance(effect, fx.Active) and self.shard is not None:
            for group, value in self.machine.coordinator.durable_state().groups.items():
                for member in value.members:
                    self.shard.fire(session_timer(group, member.member_id))


class DoesNotAckAfterwards(Replica):
    """When everything is whole again, followers take what they get and say nothing."""

    def _send(self, message: Message) -> None:
        if self.world.faults or not isinstance(message, Ack):
            super()._send(message)


class CountsWhileRebuilding(Replica):
    """What lost data does not say so to candidates and leaders."""

    def _send(self, message: Message) -> None:
        if isinstance(message, Sealed | Ack):
            message = msgspec.structs.replace(message, rebuilding=False)
        super()._send(message)


DUEL = {"replicas": 3, **profiles.DUEL, "files": False, "plan": False}
"""Nominators that fight: many short leaderships whose tails differ."""
CUTS = {
    **DUEL,
    "loss": 0.0,
    "delay_ms_max": 3,
    "disk_ms_max": 1,
    "crash_every_ms": 0,
    "rogue_every_ms": 40,
    "partition_every_ms": 150,
    "partition_ms_max": 200,
    "append_bytes_max": 10_000,
}
"""The same by short cuts of the network: tails of different length."""
STALE = {
    **CUTS,
    "rogue_every_ms": 60,
    "partition_every_ms": 250,
    "partition_ms_max": 900,
    "crash_in_effects": 0.0,
    "long_delay": 0.0,
    "deletes": 0.0,
    "groups": 1,
    "clients": 6,
    "all_crash_every_ms": 0,
    "full_every_ms": 0,
    "broken_every_ms": 0,
    "slow_every_ms": 0,
    "flip_every_ms": 0,
    "wipe_every_ms": 0,
    "clean_every_ms": 0,
    "outage_every_ms": 0,
}
"""Leaders that are cut off while another one is elected, and clients who still ask them."""
LOSSES = {**DUEL, "flip_every_ms": 150, "crash_every_ms": 0, "crash_in_effects": 0.0}
"""One replica after the other loses data."""
POWER = {**DUEL, "flush_os": True, "power_loss": 1.0, "safety_ms": 1_500, "crash_every_ms": 250}
"""Power losses under flush os, while logs are young."""
SETS = {
    **DUEL,
    "spares": 3,
    "loss": 0.02,
    "delay_ms_max": 4,
    "crash_every_ms": 0,
    "crash_in_effects": 0.0,
    "rogue_every_ms": 40,
    "rogue_sets": 0.7,
    "partition_every_ms": 300,
    "partition_ms_max": 400,
}
"""Changes of the set that overlap with elections and with one another."""
CLEANED = {
    **DUEL,
    "loss": 0.05,
    "rogue_every_ms": 300,
    "clean_every_ms": 200,
    "deletes": 0.4,
    "checkpoint_every_ms": 200,
}

MEMBERS = {**DUEL, "members": 3, "rogue_every_ms": 400, "crash_every_ms": 0}

CANARIES: dict[str, Fault] = {
    "commits are answered at once": Fault(
        50, replica_class=AnswersCommitsAtOnce, options={**DUEL, "rogue_every_ms": 400}, reason="went back|is gone"
    ),
    "answers do not wait for the commit": Fault(
        50, replica_class=AnswersBeforeTheCommit, options=MEMBERS, reason="assigned to|went back|is gone"
    ),
    "members are forgotten at a load": Fault(50, replica_class=ForgetsMembers, options=MEMBERS, reason="has the state"),
    "sessions end early after a load": Fault(
        50, replica_class=EndsSessionsEarly, options=MEMBERS, reason="ends the session of"
    ),
    "followers do not ack after the faults": Fault(
        1, replica_class=DoesNotAckAfterwards, options=DUEL, reason="ms after the faults stopped"
    ),
}
"""Defects of a host, which the rules do not know of. ``reason``: what is said of them."""

FAULTS: dict[str, Fault] = {
    "no seal": Fault(100, NoSeal, options=DUEL),
    "older-epoch records counted as committed": Fault(200, OlderEpochsCommitted, options=DUEL),
    "promise not durable": Fault(100, PromiseNotDurable, options=DUEL),
    "longest log instead of best": Fault(
        300, LongestLog, options={**CUTS, "replicas": 5, "partition_every_ms": 60, "partition_ms_max": 400}
    ),
    "candidate keeps its own longer tail": Fault(300, KeepsLongerTail, options=CUTS),
    "follower does not truncate": Fault(100, FollowerDoesNotTruncate, options=DUEL),
    "append does not check the promise": Fault(200, AppendIgnoresPromise, options=DUEL),
    "append of a higher epoch does not raise it": Fault(300, AppendDoesNotRaise, options={**DUEL, "replicas": 5}),
    "promised leader ignored": Fault(50, PromisedLeaderIgnored, options=DUEL),
    "leader goes on after its own higher promise": Fault(200, LeaderGoesOn, options=DUEL),
    "late duplicate truncates": Fault(50, LateDuplicateTruncates, options=DUEL),
    "ack = own log end": Fault(100, AcksOwnLogEnd, options=DUEL),
    "follower's commit point from its own end": Fault(200, CommitsOwnEnd, options=DUEL),
    "led again in the same epoch after a restart": Fault(100, LeadsAgain, options=DUEL),
    "resignation's promise open for ever": Fault(200, ResignationStaysOpen, options=DUEL),
    "ack before fsync": Fault(50, AcksBeforeFsync, options=DUEL),
    "leader counts itself before fsync": Fault(50, LeaderCountsBeforeFsync, options=DUEL),
    "emptied log votes": Fault(200, replica_class=EmptiedLogVotes, options={**DUEL, "flip_every_ms": 1_000}),
    "emptied by a power loss, votes": Fault(200, replica_class=EmptiedByPowerLossVotes, options=POWER),
    "log that is used is not marked": Fault(50, UsedIsNotMarked, options=POWER),
    "rebuilding replica is counted": Fault(200, replica_class=CountsWhileRebuilding, options=LOSSES),
    "rebuilt only to the commit point": Fault(300, RebuiltToCommitPoint, options=LOSSES),
    "set change: seal in the new only": Fault(200, SealsInTheNewOnly, options=SETS),
    "set change: seal in the old only": Fault(300, SealsInTheOldOnly, options=SETS),
    "set change: commit in the old only": Fault(100, CommitsInTheOldOnly, options=SETS),
    "previousReplicas forgotten after a crash": Fault(300, PreviousForgotten, options=SETS),
    "illegal transition taken": Fault(100, IllegalTransition, options=SETS),
    "set known to the operator only": Fault(100, SetKnownToTheOperatorOnly, options=SETS),
    "reads not confirmed": Fault(400, ReadsNotConfirmed, options=STALE),
    "tombstone horizon ignored": Fault(100, HorizonIgnored, options=CLEANED),
    "checkpoint above the commit point": Fault(
        100, CheckpointAboveCommitPoint, options={**DUEL, "checkpoint_every_ms": 200}
    ),
    "checkpoint below the horizon loaded": Fault(200, CheckpointBelowHorizon, options=CLEANED),
}
