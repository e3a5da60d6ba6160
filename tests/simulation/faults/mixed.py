"""Rules of groups that have members of both protocols, and of their changes from one kind to the other."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.simulation.faults.consumers import unfenced
from tests.simulation.faults.fault import Fault

from muster_coordinator.groups.classic import consumer_groups as consumer_groups_module
from muster_coordinator.groups.classic import migration as migration_module
from muster_coordinator.groups.classic import rebalance as rebalance_module
from muster_coordinator.groups.classic import sync as sync_module
from muster_coordinator.groups.consumer import classic_members as classic_members_module
from muster_coordinator.groups.consumer import reconciliation as reconciliation_module
from muster_coordinator.groups.consumer import removal as removal_module
from muster_coordinator.groups.consumer.embedded import write_assignment
from muster_coordinator.groups.consumer.member import STABLE, UNRELEASED_PARTITIONS
from muster_coordinator.groups.consumer.step import Step
from muster_coordinator.groups.consumer.tables import session_timer
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.effects import Effects
from muster_coordinator.state_machine import NOTHING, Result

__all__ = ["MIXED_FAULTS"]

_downgrade = migration_module.downgrade
_classic_of = migration_module._classic_of
_sync = classic_members_module.sync_classic_member
_advance = reconciliation_module._advance
_begin_generation = rebalance_module._begin_generation
_classic_member = migration_module._classic_member
_consumer_value = migration_module._consumer_value
_end_classic = consumer_groups_module.end_classic
_on_timer = GroupCoordinator.on_timer
_replace = Step.replace


def _nothing(*arguments: object) -> Any:
    return {}


def _never(*arguments: object) -> bool:
    return False


def _without_rebalance(state: Any, group: Any, leaving: Any, _rebalance: bool, effects: Effects, now_ms: int) -> None:
    _downgrade(state, group, leaving, False, effects, now_ms)


def _without_live_group(state: Any, group: Any, leaving: Any, rebalance: bool, effects: Effects, now_ms: int) -> None:
    _downgrade(state, group, leaving, rebalance, effects, now_ms)
    state.converted.clear()


def _with_generation_before(*arguments: Any) -> Any:
    classic = _classic_of(*arguments)
    classic.generation -= 1
    return classic


def _gives_target(state: Any, group: Any, request: Any, token: Any) -> Result:
    """SyncGroup names what others have still to give back."""
    result = _sync(state, group, request, token)
    member = group.member(request.member_id)
    if result.response.error_code or member is None:
        return result
    target = [(state.topics.name_of(topic_id), each) for topic_id, each in group.target_of(member.member_id).items()]
    assignment = write_assignment([(name, each) for name, each in target if name is not None], 0)
    response = msgspec.structs.replace(result.response, assignment=assignment)
    return Result(result.records, response, result.replies, result.timers)


def _without(kind: str) -> Any:
    def on_timer(self: GroupCoordinator, key: Any, now_ms: int) -> Result:
        return NOTHING if key[0] == kind else _on_timer(self, key, now_ms)

    return on_timer


def _member_without_instance(group: Any, member_id: str) -> Any:
    member = _classic_member(group, member_id)
    member.group_instance_id = None
    return member


def _value_without_instance(member: Any, subscription: Any) -> Any:
    return msgspec.structs.replace(_consumer_value(member, subscription), instance_id=None)


def _without_sessions(group: Any, effects: Effects) -> None:
    _end_classic(group, effects)
    for member_id in group.members:
        effects.cancel_timer(session_timer(group.group_id, member_id))


def _in_the_same_generation(group: Any, effects: Effects, now_ms: int) -> None:
    group.generation -= group.generation > 0
    _begin_generation(group, effects, now_ms)


def _waits_no_more(current: Any, goal: Any, reported: Any) -> Any:
    after = _advance(current, goal, reported)
    return after._replace(state=STABLE) if after.state == UNRELEASED_PARTITIONS else after


def _without_target(self: Any, old: Any, member_id: str) -> Any:
    member = _replace(self, old, member_id)
    self._target = {}
    return member


QUICK, LATE, LATEST = 120, 400, 1_000

MIXED_FAULTS = {
    "an upgrade forgets what classic members have": Fault(QUICK, migration_module, "_with_ids", _nothing),
    "a partition of a classic member is given on without its word": Fault(
        QUICK, classic_members_module, "_with_ids", lambda *arguments: ()
    ),
    "SyncGroup of a classic member names what others have still": Fault(
        QUICK, sync_module, "sync_classic_member", _gives_target
    ),
    "a classic member is not told that it may take a step": Fault(
        QUICK, classic_members_module, "_has_to_join", _never
    ),
    "a downgrade does not rebalance": Fault(LATEST, consumer_groups_module, "downgrade", _without_rebalance),
    "a downgrade loses the live group": Fault(QUICK, consumer_groups_module, "downgrade", _without_live_group),
    "a downgrade begins at an older generation": Fault(QUICK, migration_module, "_classic_of", _with_generation_before),
    "a downgrade gives out at once what others still have": Fault(
        LATE, classic_members_module, "_is_settled", lambda group: True
    ),
    "a classic member that does not join anew stays": Fault(
        LATE, GroupCoordinator, "on_timer", _without("consumer-join")
    ),
    "a process of before goes on in a classic group": Fault(LATE, classic_members_module, "static_member", unfenced),
    "a process of before leaves for the one that has its instance id": Fault(
        QUICK, removal_module, "static_member", unfenced
    ),
    "an upgrade forgets instance ids": Fault(LATE, migration_module, "_consumer_value", _value_without_instance),
    "an upgrade starts no sessions": Fault(LATE, consumer_groups_module, "end_classic", _without_sessions),
    "an upgrade forgets who waits": Fault(LATE, consumer_groups_module, "end_classic", _nothing),
    "a downgrade forgets instance ids": Fault(QUICK, migration_module, "_classic_member", _member_without_instance),
    "a downgrade forgets what members have": Fault(LATE, migration_module, "_had_by", _nothing),
    "a generation begins with the number of the one before": Fault(
        QUICK, rebalance_module, "_begin_generation", _in_the_same_generation
    ),
    "a member that waits for others is at its target": Fault(LATE, reconciliation_module, "_advance", _waits_no_more),
    "a static member that is back has no target": Fault(LATE, Step, "replace", _without_target),
}
"""Each is looked for in the seeds with groups of both protocols."""
