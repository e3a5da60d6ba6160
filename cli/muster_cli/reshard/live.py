"""`muster reshard` of a running cluster.

The operator owns the phases (docs/resharding.md): it closes the old partitions, waits until this command has filled the
new ones, and opens those. The command can be ended at any time, and continues when it is started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_cli.reshard.copying import Copy
from muster_cli.reshard.phases import FROM_COPYING_ON, OVER, begin, until
from muster_cli.reshard.site import Site
from muster_coordinator.podapi.client import new_session
from muster_operator.api.models import ReshardPhase
from muster_pipeline.reshard.job import Summary


async def reshard_cluster(
    site: Site, partitions: int, work: Path, leave_out: Sequence[str], segment_bytes: int, progress: Amount
) -> Summary | None:
    """Re-shard to `partitions`, and return the summary of the copy; None if the topic has as many already.

    Raises CliError, and the PipelineErrors of the copy.
    """
    topic = await site.topic()
    reshard = topic.status.reshard
    if reshard is None or reshard.phase in (*OVER, ReshardPhase.ABORTING) or reshard.partitions != partitions:
        if topic.layout.partitions == partitions and (reshard is None or reshard.phase in OVER):
            return None
        reshard = await begin(site, partitions)
    reshard = await until(site, reshard.base, FROM_COPYING_ON, progress)
    async with new_session() as http:
        copy = Copy(site, http, reshard, work, progress)
        if reshard.phase is ReshardPhase.COPYING:
            await copy.write(leave_out, segment_bytes)
            await copy.fill()
        await until(site, reshard.base, (ReshardPhase.DONE,), progress)
        return copy.end()


async def abort(site: Site, progress: Amount) -> bool:
    """Take a re-shard back. False: none is under way. Raises CliError if it is too late."""
    reshard = (await site.topic()).status.reshard
    if reshard is None or reshard.phase in OVER:
        return False
    await site.ask(None)
    ended = await until(site, reshard.base, (ReshardPhase.ABORTED, ReshardPhase.DONE), progress, aborting=True)
    if ended.phase is ReshardPhase.DONE:
        raise CliError("the new partitions serve already: re-shard back instead")
    return True
