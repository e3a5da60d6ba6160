"""Step: show on the OffsetsPartitions what was decided of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from muster_operator.plan.actions import Action, WritePartitionStatus
from muster_operator.steps.context import RETRY_S, Context, Outcome
from muster_operator.store.port import ConflictError, NotFoundError, StoreError

log = structlog.get_logger(__name__)

IN_PARALLEL = 4
"""Statuses under way. More would take the processors from the pods that take partitions over."""


async def show_partitions(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Write the statuses in one pass in the background: they follow the record at once and delay no election.

    A plan that comes during a pass replaces what the pass has not begun to write. Best effort: what is not written
    differs from what is decided, so the next plan asks for it again.
    """
    todo = [each for each in actions if isinstance(each, WritePartitionStatus)]
    todo.sort(key=_names_the_leader_already)
    memory = context.memory
    memory.to_show = {each.seen.metadata.name: each for each in todo}
    if not todo or memory.showing is not None:
        return None
    memory.showing = set()
    context.spawn(_show(context, memory.showing))
    return Outcome("PartitionsShown", f"{len(todo)} statuses")


async def _show(context: Context, under_way: set[str]) -> None:
    try:
        await asyncio.gather(*(_write_one_by_one(context, under_way) for _ in range(IN_PARALLEL)))
    finally:
        context.memory.showing = None


async def _write_one_by_one(context: Context, under_way: set[str]) -> None:
    memory = context.memory
    while (name := next((name for name in memory.to_show if name not in under_way), None)) is not None:
        each = memory.to_show.pop(name)
        under_way.add(name)
        try:
            await context.store.write_partition_status(each.seen, each.status)
        except (ConflictError, NotFoundError):
            continue  # changed or deleted meanwhile: what is there now is planned for anew
        except StoreError as error:
            log.warning("partition_status_not_written", name=name, error=str(error))
            await asyncio.sleep(RETRY_S)
            return  # what was not written is planned again
        finally:
            under_way.discard(name)


def _names_the_leader_already(action: WritePartitionStatus) -> tuple[bool, bool]:
    """Sort key: first statuses that name another leader, then those with another state, then counts and conditions."""
    before, after = action.seen.status, action.status
    return before.leader == after.leader, before.state is after.state
