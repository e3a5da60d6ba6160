"""The resets of offsets that pods are asked for, and what is said of each: once for every id.

A plan with all its offsets is in the status before anything is written. An operator that does not know whether a pod
was asked before asks again. A pod that finds the offsets of before writes those of after; one that finds those of after
writes nothing. If it finds others, consumers have gone on, nobody knows from where, and nothing is written.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster_coordinator.podapi.resets import PlannedOffset, PlanRequest, ResetRequest, WantedOffset
from muster_operator.api.conditions import Condition, ConditionType, Reason, without_condition
from muster_operator.api.consumer_group import (
    ConsumerGroup,
    ConsumerGroupStatus,
    GroupReset,
    PastReset,
    ResetOffset,
    ResetPhase,
    ResetStatus,
)
from muster_operator.api.durations import parse_time
from muster_operator.plan.reset_facts import ResetFacts, ResetKey
from muster_operator.plan.verdict import flag

PAST_MAX = 500
"""Ids that a status has room for."""
SHOWN = 1_000
"""Characters of what stands in the way."""


def key_of(group: ConsumerGroup) -> ResetKey | None:
    """None: no reset is declared."""
    reset = group.spec.reset
    return (group.metadata.uid, reset.id) if reset is not None else None


def is_to_ask(group: ConsumerGroup, facts: ResetFacts) -> bool:
    """True if a pod is to be asked, for a plan or to carry out that of the status."""
    reset = group.spec.reset
    if reset is None or not facts.is_due or _why_never(group.status, reset):
        return False
    if is_recorded(group):
        return group.status.reset is not None and group.status.reset.phase == "Planned" and facts.outcome is None
    return not facts.plan


def reset_request(group: ConsumerGroup) -> ResetRequest:
    """The plan of the status, which is that of the declared reset."""
    reset, last = group.spec.reset, group.status.reset
    assert reset is not None
    assert last is not None
    offsets = [
        PlannedOffset(each.topic, each.partition, -1 if each.before is None else each.before, each.after)
        for each in last.offsets
    ]
    return ResetRequest(group.spec.group, tuple(offsets), reset.members == "Park")


def is_recorded(group: ConsumerGroup) -> bool:
    """True if the declared reset is the one in the status."""
    reset, last = group.spec.reset, group.status.reset
    return reset is not None and last is not None and last.id == reset.id


def plan_request(group: ConsumerGroup) -> PlanRequest:
    """The declared reset. Raises ValueError: a time that is none."""
    reset = group.spec.reset
    assert reset is not None
    number = 0
    if reset.to == "offset":
        number = reset.offset or 0
    elif reset.to == "shiftBy":
        number = reset.shift_by or 0
    elif reset.to == "datetime":
        number = max(int(parse_time(reset.datetime or "") * 1000), 0)
    offsets = tuple([WantedOffset(each.topic, each.partition, each.offset) for each in reset.offsets or ()])
    return PlanRequest(group.spec.group, reset.to, number, reset.topics, reset.members == "Park", offsets)


def with_reset(
    status: ConsumerGroupStatus, group: ConsumerGroup, facts: ResetFacts, waits: str, time: str
) -> ConsumerGroupStatus:
    """The status of a group with what is to be said of its reset. `waits`: why no pod can be asked, "" if one can."""
    reset = group.spec.reset
    if reset is None:
        return replace(status, conditions=without_condition(status.conditions, ConditionType.OFFSETS_RESET))
    if not is_recorded(group) and facts.plan and not _why_never(status, reset):
        status = _recorded(status, reset, facts, time)
    elif status.reset is not None and is_recorded(group) and status.reset.phase == "Planned" and facts.outcome:
        phase: ResetPhase = "Done" if facts.outcome.outcome == "Written" else "Superseded"
        status = replace(status, reset=replace(status.reset, phase=phase, time=time))
    return replace(status, conditions=_conditions(status, group, reset, waits or facts.obstacle, time))


def _recorded(status: ConsumerGroupStatus, reset: GroupReset, facts: ResetFacts, time: str) -> ConsumerGroupStatus:
    last = status.reset
    past = status.past_resets if last is None else (*status.past_resets, PastReset(last.id, last.phase, last.time))
    offsets = [
        ResetOffset(each.topic, each.partition, each.after, each.before if each.before >= 0 else None)
        for each in facts.plan
    ]
    return replace(status, reset=ResetStatus(reset.id, "Planned", time, tuple(offsets)), past_resets=past)


def _conditions(
    status: ConsumerGroupStatus, group: ConsumerGroup, reset: GroupReset, obstacle: str, time: str
) -> tuple[Condition, ...]:
    last = status.reset
    if last is None or last.id != reset.id or last.phase == "Planned":
        past = _past(status, reset)
        done, reason = (past == "Done", Reason.RESET_PAST) if past else (False, Reason.RESET_WAITS)
        text = f"reset {reset.id}: {_why_never(status, reset) or obstacle[:SHOWN] or 'a pod is asked'}"
    elif last.phase == "Done":
        done, reason = True, Reason.RESET_DONE
        text = f"reset {reset.id}: {len(last.offsets)} offsets were written"
    else:
        done, reason = False, Reason.RESET_SUPERSEDED
        text = (
            f"reset {reset.id}: offsets were committed since it was planned, and it is not known whether it was carried"
            " out before: nothing is written any more; give it another id to have it done"
        )
    generation = group.metadata.generation
    return flag(status.conditions, ConditionType.OFFSETS_RESET, done, reason, text, generation, time)


def _past(status: ConsumerGroupStatus, reset: GroupReset) -> str:
    """The end of an earlier reset with this id; "" if there was none."""
    return next((each.phase for each in status.past_resets if each.id == reset.id), "")


def _why_never(status: ConsumerGroupStatus, reset: GroupReset) -> str:
    if _past(status, reset):
        return "it was dealt with before, as pastResets shows, and an id counts once: give it another one"
    if len(status.past_resets) >= PAST_MAX and not (status.reset is not None and status.reset.id == reset.id):
        return f"the status has no room for more than {PAST_MAX} ids: make another ConsumerGroup"
    return ""
