"""`muster backup follow`: keeps a store of a second site close behind a running cluster, by one backup after the other.

A cluster that does not answer is asked again for as long as the command runs. One that is not what became of the newest
backup ends it: its records are not those that the store goes on with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.create import create_backup
from muster_cli.backup.cut import OtherHistoryError
from muster_cli.backup.follow_metrics import FollowMetrics
from muster_cli.backup.lag import Lag, measure_lag
from muster_cli.backup.manifest import Backup
from muster_cli.backup.prune import prune
from muster_cli.backup.site import PodsOfCluster
from muster_cli.backup.store import Store
from muster_cli.errors import CliError
from muster_cli.progress import Amount


class Round(msgspec.Struct, frozen=True, rename="camel"):
    """`lag`: before the round; None: the store had no backup. `backup`: the new one; empty if there is none. `sent`:
    bytes that the store did not have."""

    lag: Lag | None
    backup: str = ""
    sent: int = 0
    seconds: float = 0.0
    trouble: str = ""


class Follower:
    """Follows one cluster into one store."""

    def __init__(
        self,
        cluster: Callable[[], AbstractAsyncContextManager[PodsOfCluster]],
        store: Store,
        rate: int,
        keep: int,
        progress: Amount,
        metrics: FollowMetrics,
    ) -> None:
        """`rate`: bytes per second that are read from pods at most. `keep`: how many of the newest backups stay."""
        self._cluster = cluster
        self._store = store
        self._rate = rate
        self._keep = keep
        self._progress = progress
        self._metrics = metrics

    def follow(self, every_s: float, tell: Callable[[Round], None]) -> None:
        """Blocks until interrupted. Raises OtherHistoryError."""
        while True:
            began = time.monotonic()
            tell(self.round())
            time.sleep(max(0.0, began + every_s - time.monotonic()))

    def round(self) -> Round:
        """Make one backup and drop old ones. Blocks. Raises OtherHistoryError; any other failure is in the answer."""
        lag, sent, seconds, new = None, 0, 0.0, ""
        try:
            newest = self._newest()
            if newest is not None:
                self._metrics.show_newest(newest)
                lag = asyncio.run(measure_lag(self._cluster(), newest))
                self._metrics.show_lag(lag)
                if lag.records is None:
                    return Round(lag, trouble=lag.trouble)
            made = asyncio.run(
                create_backup(self._cluster(), self._store, self._rate, self._progress, goes_on_from=newest)
            )
            new, sent, seconds = made.backup.id, made.sent, made.seconds
            self._metrics.show_newest(made.backup)
            prune(self._store, read_catalog(self._store), self._keep, 0.0, time.time_ns() // 1_000_000, dry_run=False)
        except OtherHistoryError:
            raise
        except CliError as error:
            return Round(lag, new, sent, seconds, error.message)
        return Round(lag, new, sent, seconds)

    def _newest(self) -> Backup | None:
        """Raises CliError: the newest manifest cannot be read."""
        return read_catalog(self._store).newest()
