"""The phases of a re-shard as `muster reshard` sees them. The operator owns them (docs/resharding.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_cli.reshard.site import Site
from muster_operator.api.models import ReshardPhase, ReshardStatus

POLL_S = 0.25
"""Seconds between two looks at the topic or at the pods."""

OVER = (ReshardPhase.DONE, ReshardPhase.ABORTED)
FROM_COPYING_ON = (ReshardPhase.COPYING, ReshardPhase.OPENING, ReshardPhase.DONE)


async def begin(site: Site, partitions: int) -> ReshardStatus:
    """Ask the operator for a re-shard, and wait until it has begun. Raises CliError.

    The operator begins a re-shard that was taken back again only after a change of the topic, so an old request is
    removed first.
    """
    if (await site.topic()).spec.reshard is not None:
        await site.ask(None)
    await site.ask(partitions)
    generation = (await site.topic()).metadata.generation
    while True:
        reshard = (await site.topic()).status.reshard
        if reshard is not None and reshard.generation >= generation:
            return reshard
        await asyncio.sleep(POLL_S)


async def until(
    site: Site, base: int, phases: Sequence[ReshardPhase], progress: Amount, *, aborting: bool = False
) -> ReshardStatus:
    """Wait until the re-shard whose first new partition is `base` is in one of `phases`.

    Raises CliError if it is taken back, unless `aborting`, or if another re-shard has begun.
    """
    while True:
        reshard = (await site.topic()).status.reshard
        if reshard is None or reshard.base != base:
            raise CliError("another re-shard has begun meanwhile")
        if reshard.total:
            waits = reshard.message.partition("; ")[2]
            what = f"{reshard.phase.value.lower()} (partitions{f'; {waits}' if waits else ''})"
            progress(what, reshard.ready, reshard.total)
        if reshard.phase in phases:
            return reshard
        if reshard.phase in (ReshardPhase.ABORTING, ReshardPhase.ABORTED) and not aborting:
            raise CliError(f"the re-shard was taken back: {reshard.message}")
        await asyncio.sleep(POLL_S)
