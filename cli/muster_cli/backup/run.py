"""`muster backup run`: what a Job of the operator does. Create a backup, then verify it and drop old ones, as asked.

The answer is one JSON object (`BackupResult`), which Kubernetes keeps as the termination message of the container, so
the operator needs no way into the pod.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.create import create_backup
from muster_cli.backup.prune import prune
from muster_cli.backup.site import PodsOfCluster, pods_tls
from muster_cli.backup.store import Store
from muster_cli.backup.verify import verify
from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_coordinator.security.tls import Tls
from muster_operator.api.backup_result import BackupResult

TEXT_MAX = 800
"""Characters of each text: a termination message has at most 4096 bytes."""


@dataclass(frozen=True)
class Wanted:
    """`rate`: bytes per second. `keep`, `keep_days`: as of `muster backup prune`."""

    rate: int
    keep: int
    keep_days: float
    verify: bool


class GivenPods:
    """All pods of a cluster, by addresses that were right when the operator looked. Implements `PodsOfCluster`."""

    def __init__(self, addresses: Mapping[str, str], until_s: float, tls: Tls | None) -> None:
        """`until_s`: since 1970; later they count for nothing, because other pods may have come."""
        self.tls = tls
        self._addresses = dict(addresses)
        self._until_s = until_s

    async def pods(self) -> dict[str, str]:
        """Raises CliError: the addresses are too old."""
        if time.time() > self._until_s:
            raise CliError("the addresses of the pods are too old: the Job has begun too late. The next one has others")
        return self._addresses


@asynccontextmanager
async def given_pods(cluster: str, addresses: Mapping[str, str], until_s: float) -> AsyncIterator[PodsOfCluster]:
    """`cluster`: NAMESPACE/NAME. Raises CliError."""
    directory = os.environ.get("MUSTER_TLS_DIR")
    yield GivenPods(addresses, until_s, pods_tls(Path(directory), cluster) if directory else None)


def run(
    site: AbstractAsyncContextManager[PodsOfCluster], store: Store, wanted: Wanted, progress: Amount
) -> BackupResult:
    """Blocks. Raises CliError if no backup is made; what fails after that is in the result."""
    made = asyncio.run(create_backup(site, store, wanted.rate, progress))
    backup = made.backup
    problems, trouble = "", ""
    try:
        catalog = read_catalog(store)
        if wanted.verify:
            found = verify(store, catalog, [backup], progress).problems
            problems = short("; ".join(str(each) for each in found))
        if not problems:
            prune(store, catalog, wanted.keep, wanted.keep_days, time.time_ns() // 1_000_000, dry_run=False)
    except CliError as error:
        trouble = short(str(error))
    return BackupResult(
        backup=backup.id,
        taken_at_ms=backup.taken_at_ms,
        cluster_id=backup.cluster_id,
        bytes=backup.size,
        sent=made.sent,
        verified=wanted.verify and not trouble,
        problems=problems,
        error=trouble,
    )


def failed(error: CliError) -> BackupResult:
    return BackupResult(error=short(str(error)))


def short(text: str) -> str:
    """The text, cut to what there is room for."""
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
