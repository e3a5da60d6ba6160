"""Rules of groups that have members of both protocols, and of their changes from one kind to the other."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.simulation.faults.fault import Fault

from muster_coordinator.groups import consumer_groups as consumer_groups_module
from muster_coordinator.groups import migration as migration_module
from muster_coordinator.groups import sync as sync_module
from muster_coordinator.groups.consumer import classic_members as classic_members_module
from muster_coordinator.groups.consumer.embedded import write_assignment
from muster_coordinator.groups.effects import Effects
from muster_coordinator.state_machine import Result

__all__ = ["MIXED_FAULTS"]

_downgrade = migration_module.downgrade
_classic_of = migration_module._classic_of
_sync = classic_members_module.sync_classic_member


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


QUICK = 120

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
    "a downgrade does not rebalance": Fault(QUICK, consumer_groups_module, "downgrade", _without_rebalance),
    "a downgrade loses the live group": Fault(QUICK, consumer_groups_module, "downgrade", _without_live_group),
    "a downgrade begins at an older generation": Fault(QUICK, migration_module, "_classic_of", _with_generation_before),
    "a downgrade gives out at once what others still have": Fault(
        QUICK, classic_members_module, "_is_settled", lambda group: True
    ),
}
"""Each is looked for in the seeds with groups of both protocols."""
