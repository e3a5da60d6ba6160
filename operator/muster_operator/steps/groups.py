"""Steps: ask pods about groups that can move, have them moved, and say where they are (ADR 48)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from muster_coordinator.podapi.client import PodRefusedError
from muster_coordinator.podapi.moves import MoveAnswer, MoveRequest
from muster_operator.plan.actions import Action, AskedMove, StartMoves, WriteGroupStatus
from muster_operator.plan.groups import leaders_of_groups
from muster_operator.plan.observation import CallKind
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import TELL_EVERY_S, Context, Outcome
from muster_operator.steps.pod_calls import call_pod
from muster_operator.steps.telling import write_each

SETTLED_LOOKS = 10
"""Times TELL_EVERY_S: how often pods are asked while no group is on its way; else each TELL_EVERY_S."""


async def look_at_groups(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Asks in the background the pods that lead partitions of declared groups."""
    seen = context.seen
    if seen.cluster is None or seen.cluster.spec.upstream is None or not seen.groups:
        return None
    pods = {*leaders_of_groups(seen).values()}
    news = any(each.is_moving or not each.is_known for each in seen.group_facts.values())
    if not pods or not context.has_turn("look_at_groups", TELL_EVERY_S * (1 if news else SETTLED_LOOKS)):
        return None
    declared = frozenset(each.spec.group for each in seen.groups)
    for pod in sorted(pods):
        if (CallKind.MOVES, pod) not in seen.busy:
            call_pod(context, CallKind.MOVES, pod, partial(_look, context, declared), failed="moves_not_told")
    return None


async def _look(context: Context, declared: frozenset[str], session: PodSession) -> bool:
    context.memory.groups.said(session.info.name, await session.client.moves(), declared)
    return True


async def start_moves(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Starts moves in the background: Kafka is asked as well."""
    todo = [each for each in actions if isinstance(each, StartMoves)]
    for each in todo:
        call_pod(context, CallKind.MOVE, each.pod, partial(_start, context, each.groups), failed="move_not_asked")
    names = [asked.group for each in todo for asked in each.groups]
    return Outcome("MovesAsked", f"{len(names)} groups: {', '.join(names)}") if names else None


async def _start(context: Context, groups: Sequence[AskedMove], session: PodSession) -> bool:
    """Starts a move; `look_at_groups` tells later how it ended."""
    for each in groups:
        try:
            answer = await session.client.move(MoveRequest(each.group, back=each.back))
        except PodRefusedError as error:
            if error.status == 409:
                return False  # another pod leads its partition by now
            answer = MoveAnswer((error.message,), None)
        context.memory.groups.asked(each.group, each.generation, answer, context.clock.monotonic())
    context.memory.told_at.pop("look_at_groups", None)
    return True


async def write_group_status(context: Context, actions: Sequence[Action]) -> Outcome | None:
    todo = [each for each in actions if isinstance(each, WriteGroupStatus)]
    store = context.store
    told = await write_each(
        context, "write_group_status", todo, lambda each: store.write_group_status(each.seen, each.status)
    )
    return Outcome("GroupsTold", f"{len(todo)} groups") if told else None
