"""Rules of groups that members of both protocols depend on."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.simulation.faults.fault import Fault

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups import coordinator as coordinator_module
from muster_coordinator.groups import searches as searches_module
from muster_coordinator.groups import sessions as sessions_module
from muster_coordinator.groups import snapshot as snapshot_module
from muster_coordinator.groups.classic import consumer_groups as consumer_groups_module
from muster_coordinator.groups.classic import heartbeat as classic_heartbeat_module
from muster_coordinator.groups.classic import sync as sync_module
from muster_coordinator.groups.classic.member import Member as ClassicMember
from muster_coordinator.groups.consumer import heartbeat as heartbeat_module
from muster_coordinator.groups.consumer import offset_checks as offset_checks_module
from muster_coordinator.groups.consumer import reconciliation as reconciliation_module
from muster_coordinator.groups.consumer import removal as removal_module
from muster_coordinator.groups.consumer import step as step_module
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.heartbeat import _Heartbeat
from muster_coordinator.groups.consumer.member import (
    NEW_MEMBER,
    NO_MEMBER_VALUE,
    NOTHING_OWNED,
    UNREVOKED_PARTITIONS,
    Member,
)
from muster_coordinator.groups.consumer.step import Step
from muster_coordinator.groups.consumer.tables import rebalance_timer
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.effects import Effects
from muster_coordinator.groups.offsets import commit as commit_module
from muster_coordinator.groups.offsets import fetch as fetch_module
from muster_coordinator.records.consumer_group import (
    METADATA_TYPE,
    TARGET_MEMBER_TYPE,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
)
from muster_coordinator.requests.consumer_groups import ConsumerGroupHeartbeatResponse
from muster_coordinator.state_machine import NOTHING, Result

__all__ = ["CONSUMER_FAULTS", "unfenced"]

_group_error = commit_module._group_error
_reconcile = reconciliation_module.reconcile
_expire_group = searches_module.expire_group
_on_join_timer = coordinator_module.on_join_timer
_on_loaded = GroupCoordinator.on_loaded
_parts = snapshot_module._parts
_set_current = ConsumerGroup._set_current
_set_session_timeout = ClassicMember.set_session_timeout
_run = _Heartbeat.run
_bump = Step.bump
_find_static = _Heartbeat._find_static_member
_replay = ConsumerGroup.replay
_advance = reconciliation_module._advance
_check_epoch = _Heartbeat._check_epoch
_set_member = ConsumerGroup._set_member
_start_timers = sessions_module.start_timers
_static_member = removal_module.static_member
_to_look_for = heartbeat_module.to_look_for


def _nothing(*arguments: object) -> None:
    pass


def _no_result(*arguments: object) -> Result:
    return NOTHING


# -- members of the new protocol --------------------------------------------------------------------------------------


def _without_owners(current: Any, goal: Any, reported: Any) -> Any:
    return _reconcile(current, goal._replace(owners={}), reported)


def _forgets_targets(self: GroupCoordinator, now_ms: int) -> Result:
    for group in self._state.consumers.groups.values():
        for member_id in list(group.targets):
            group.replay(ConsumerGroupRecord(TARGET_MEMBER_TYPE, group.group_id, member_id, None))
    return _on_loaded(self, now_ms)


def _unbumped(self: Any, member: Any, value: Any, changed: bool) -> int:
    return _bump(self, member, value, changed and not self._group.members)


def _unreleased(self: Any, member_id: str, instance_id: str) -> Member:
    old = self._group.static_member(instance_id)
    if not self._joins or old is None:
        return _find_static(self, member_id, instance_id)
    if old.member_id == member_id:
        return self._group.member(member_id) or Member(member_id, NO_MEMBER_VALUE, NEW_MEMBER)
    return self.replace(old, member_id)  # type: ignore[no-any-return]


def _does_not_renew(self: Any) -> Result:
    result = _run(self)
    if self._joins:
        return result
    timers = [each for each in result.timers if each.key[0] != "consumer-session"]
    return Result(result.records, result.response, result.replies, timers)


def _expires_members(state: Any, group: Any, effects: Effects, now_ms: int) -> int:
    if isinstance(group, ConsumerGroup):
        for record in group.tombstones():
            effects.record(record)
        return 1
    return _expire_group(state, group, effects, now_ms)


def _stays(state: Any, request: Any, token: Any, fence: Any) -> Result:
    return Result(response=ConsumerGroupHeartbeatResponse(0, None, request.member_id, request.member_epoch))


def _same_hash(group: ConsumerGroup, topics: Any, *arguments: Any, **more: Any) -> int:
    return group.metadata_hash or _metadata_hash(group, topics, *arguments, **more)


_metadata_hash = step_module.metadata_hash


def _fences_quietly(state: Any, group: ConsumerGroup, member_ids: list[str], effects: Effects) -> None:
    for member_id in member_ids:
        removal_module.forget_member(state, group, member_id, effects)
    effects.record(group.record(METADATA_TYPE, ConsumerGroupMetadataValue(group.epoch, group.metadata_hash)))


def _without_consumers(state: Any, size: int) -> Any:
    return (replace(part, consumers=[]) for part in _parts(state, size))


def _without_targets(self: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    if record.type != TARGET_MEMBER_TYPE:
        _replay(self, record)


def _own_first(self: ConsumerGroup, member_id: str, current: Any) -> None:
    """The assignment of a member that has one is not replayed."""
    if current is None or member_id not in self.current:
        _set_current(self, member_id, current)


def _takes_any_older_epoch(self: Any, current: Any) -> None:
    if self._request.member_epoch > current.epoch:
        _check_epoch(self, current)


def _fences_who_is_behind(self: Any, current: Any) -> None:
    if not self._joins and self._request.member_epoch != current.epoch:
        raise GroupError(ErrorCode.FENCED_MEMBER_EPOCH, "")


def _with_new_epochs(current: Any, goal: Any, reported: Any) -> Any:
    after = _advance(current, goal, reported)
    return after._replace(assigned={each: dict.fromkeys(had, after.epoch) for each, had in after.assigned.items()})


def _without_revocation(current: Any, goal: Any, reported: Any) -> Any:
    return _advance(current, goal, reported)._replace(pending_revocation=NOTHING_OWNED)


def _goes_on(current: Any, goal: Any, reported: Any) -> Any:
    after = _advance(current, goal, reported)
    return after._replace(epoch=goal.epoch) if after.state == UNREVOKED_PARTITIONS else after


def unfenced(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    return group.static_member(instance_id) or _static_member(group, instance_id, member_id)


def _without_instance(self: ConsumerGroup, member_id: str, value: Any) -> None:
    _set_member(self, member_id, value)
    if value is not None and value.instance_id is not None:
        self.static_members.pop(value.instance_id, None)


def _without_rebalance_timers(state: Any, group: ConsumerGroup, effects: Effects) -> None:
    _start_timers(state, group, effects)
    for member_id in group.members:
        effects.cancel_timer(rebalance_timer(group.group_id, member_id))


def _looks_once(state: Any, group: ConsumerGroup, *arguments: Any) -> tuple[str, ...]:
    wanted = _to_look_for(state, group, *arguments)
    return () if group.regexes and set(wanted) <= group.regexes.keys() else wanted


# -- classic members --------------------------------------------------------------------------------------------------


def _takes_old_generation(group: Any, member_id: str, instance_id: Any, generation_id: int, api: Any) -> int:
    """`>` for `!=`."""
    code = _group_error(group, member_id, instance_id, generation_id, api)
    if code == ErrorCode.ILLEGAL_GENERATION and generation_id < group.generation:
        return _group_error(group, member_id, instance_id, group.generation, api)
    return code


def _with_old_generations(check: Any) -> Any:
    def checked(group: Any, request: Any) -> Any:
        code = check(group, request)
        if code == ErrorCode.ILLEGAL_GENERATION and request.generation_id < group.generation:
            return check(group, replace(request, generation_id=group.generation))
        return code

    return checked


def _without_classic_groups(state: Any, size: int) -> Any:
    for part in _parts(state, size):
        yield replace(part, groups=[each for each in part.groups if each[1] == snapshot_module._NIL])


def _waits_for_joins(state: Any, group: Any, effects: Effects, now_ms: int) -> None:
    if group.initial_delay is not None:
        _on_join_timer(state, group, effects, now_ms)


def _without_session_timers(self: ClassicMember, group_id: str, session_timeout_ms: int) -> None:
    _set_session_timeout(self, group_id, session_timeout_ms)
    self.session_timers = ()  # type: ignore[assignment]


QUICK, LATE, LATEST = 120, 400, 1_000

CONSUMER_FAULTS = {
    "a partition is given on before it was given back": Fault(
        QUICK, reconciliation_module, "_has_any", lambda reported, partitions: False
    ),
    "a partition that somebody has is given away": Fault(QUICK, step_module, "reconcile", _without_owners),
    "member epoch is not checked at a commit": Fault(QUICK, commit_module, "member_commit_error", lambda *arguments: 0),
    "an epoch of before is good for every commit": Fault(
        LATE, offset_checks_module, "_had_since", lambda current, topic_id, partition, epoch: True
    ),
    "targets are forgotten at a failover": Fault(QUICK, GroupCoordinator, "on_loaded", _forgets_targets),
    "group epoch stays when a subscription changes": Fault(QUICK, Step, "bump", _unbumped),
    "group epoch stays when a member goes": Fault(LATE, consumer_groups_module, "fence_members", _fences_quietly),
    "static member is replaced before it left": Fault(QUICK, _Heartbeat, "_find_static_member", _unreleased),
    "heartbeat of a consumer does not renew its session": Fault(QUICK, _Heartbeat, "run", _does_not_renew),
    "expiry removes a group that has members": Fault(LATE, searches_module, "expire_group", _expires_members),
    "session time-out of a consumer never fires": Fault(QUICK, coordinator_module, "on_member_timer", _no_result),
    "sessions of consumers do not start after a load": Fault(QUICK, sessions_module, "start_timers", _nothing),
    "rebalance time-out of a consumer never fires": Fault(LATE, coordinator_module, "on_rebalance_timer", _no_result),
    "leave of a consumer is forgotten": Fault(QUICK, heartbeat_module, "leave", _stays),
    "a topic that grows is not seen": Fault(LATE, step_module, "metadata_hash", _same_hash),
    "current assignments are not replayed": Fault(QUICK, ConsumerGroup, "_set_current", _own_first),
    "target assignments are not replayed": Fault(QUICK, ConsumerGroup, "replay", _without_targets),
    "tombstones of consumers are not replayed": Fault(QUICK, ConsumerGroup, "_forget", _nothing),
    "what a member that went had stays its own": Fault(QUICK, ConsumerGroup, "_release", _nothing),
    "topics of an expression are lost": Fault(QUICK, coordinator_module, "take_resolved", _no_result),
    "a checkpoint forgets consumers": Fault(QUICK, snapshot_module, "_parts", _without_consumers),
    "an old generation's commit is taken": Fault(QUICK, commit_module, "_group_error", _takes_old_generation),
    "a sync that is missing is waited for for ever": Fault(LATE, coordinator_module, "on_sync_timer", _nothing),
    "a join that is missing is waited for for ever": Fault(LATE, coordinator_module, "on_join_timer", _waits_for_joins),
    "heartbeat and commit do not renew a session": Fault(
        QUICK, ClassicMember, "set_session_timeout", _without_session_timers
    ),
    "a member comes with any older epoch": Fault(QUICK, _Heartbeat, "_check_epoch", _takes_any_older_epoch),
    "a member that comes with an older epoch may say that it has anything": Fault(
        LATE, _Heartbeat, "_has_only", lambda self, current: True
    ),
    "a member whose answer was lost is fenced": Fault(QUICK, _Heartbeat, "_check_epoch", _fences_who_is_behind),
    "a fetch with any epoch is answered": Fault(QUICK, fetch_module, "fetch_error", lambda *arguments: 0),
    "a process of before goes on under its instance id": Fault(LATEST, heartbeat_module, "static_member", unfenced),
    "instance ids are not replayed": Fault(QUICK, ConsumerGroup, "_set_member", _without_instance),
    "what a member keeps gets a new epoch": Fault(QUICK, reconciliation_module, "_advance", _with_new_epochs),
    "what a member has still to give back is forgotten": Fault(
        QUICK, reconciliation_module, "_advance", _without_revocation
    ),
    "a member goes on before it gave back": Fault(QUICK, reconciliation_module, "_advance", _goes_on),
    "rebalance time-outs do not start after a load": Fault(
        LATE, sessions_module, "start_timers", _without_rebalance_timers
    ),
    "an expression is looked for once": Fault(LATE, heartbeat_module, "to_look_for", _looks_once),
    "an old generation's SyncGroup is answered": Fault(
        QUICK, sync_module, "_sync_error", _with_old_generations(sync_module._sync_error)
    ),
    "an old generation's heartbeat is answered": Fault(
        QUICK,
        classic_heartbeat_module,
        "_member_error",
        _with_old_generations(classic_heartbeat_module._member_error),
    ),
    "a checkpoint forgets classic groups": Fault(QUICK, snapshot_module, "_parts", _without_classic_groups),
}
"""Each is looked for in the seeds with consumers of the new protocol."""
