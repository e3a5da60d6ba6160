"""Step: ask pods what resets of offsets would do, and have them done when the status has it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from muster_coordinator.podapi.client import PodRefusedError
from muster_operator.api.consumer_group import ConsumerGroup
from muster_operator.plan.actions import Action, AskResets
from muster_operator.plan.observation import CallKind
from muster_operator.plan.resets import is_recorded, key_of, plan_request, reset_request
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import TELL_EVERY_S, Context, Outcome
from muster_operator.steps.pod_calls import call_pod


async def ask_resets(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Asks for resets in the background: Kafka is asked as well."""
    todo = [each for each in actions if isinstance(each, AskResets)]
    for each in todo:
        call_pod(context, CallKind.RESET, each.pod, partial(_ask, context, each.groups), failed="reset_not_asked")
    if any(each.plan or not each.is_due for each in context.seen.reset_facts.values()):
        context.has_turn("ask_resets", TELL_EVERY_S)  # time alone makes them due
    names = [group.spec.group for each in todo for group in each.groups]
    return Outcome("ResetsAsked", f"{len(names)} groups: {', '.join(names)}") if names else None


async def _ask(context: Context, groups: Sequence[ConsumerGroup], session: PodSession) -> bool:
    for group in groups:
        key = key_of(group)
        assert key is not None
        try:
            await _ask_of(context, group, session)
        except PodRefusedError as error:
            if error.status == 409:
                return False  # another pod leads its partition by now
            context.memory.resets.failed(key, error.message, context.clock.monotonic())
        except ValueError as error:
            context.memory.resets.failed(key, f"spec.reset.datetime: {error}", context.clock.monotonic())
    return True


async def _ask_of(context: Context, group: ConsumerGroup, session: PodSession) -> None:
    """Raises PodApiError, ValueError."""
    key, resets = key_of(group), context.memory.resets
    assert key is not None
    if not is_recorded(group):
        plan = await session.client.plan_reset(plan_request(group))
        resets.planned(key, plan, context.clock.monotonic())
        return
    answer = await session.client.reset(reset_request(group))
    resets.carried_out(key, answer, context.clock.monotonic())
