"""The verdict on an object, and the conditions that tell it."""

from __future__ import annotations

from dataclasses import dataclass

from muster_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    with_condition,
    without_condition,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The content of an object's conditions."""

    reason: Reason
    message: str
    ready: bool = False
    reconciling: bool = False
    stalled: bool = False


def conditions_of(before: tuple[Condition, ...], verdict: Verdict, generation: int, now: str) -> tuple[Condition, ...]:
    """The conditions by the rules of kstatus: Ready always, Reconciling and Stalled only while they are true."""
    flags = {
        ConditionType.READY: verdict.ready,
        ConditionType.RECONCILING: verdict.reconciling,
        ConditionType.STALLED: verdict.stalled,
    }
    after = before
    for kind, flag in flags.items():
        if flag or kind is ConditionType.READY:
            condition = Condition(
                type=kind,
                status="True" if flag else "False",
                reason=verdict.reason,
                message=verdict.message,
                observed_generation=generation,
            )
            after = with_condition(after, condition, now)
        else:
            after = without_condition(after, kind)
    return after


def flag(
    conditions: tuple[Condition, ...],
    kind: ConditionType,
    value: bool,
    reason: Reason,
    message: str,
    generation: int,
    now: str,
    *,
    only_if_true: bool = False,
) -> tuple[Condition, ...]:
    """The conditions with this one; without it if it is false and there `only_if_true`."""
    if not value and only_if_true:
        return without_condition(conditions, kind)
    status: ConditionStatus = "True" if value else "False"
    return with_condition(conditions, Condition(kind, status, reason, message, observed_generation=generation), now)
