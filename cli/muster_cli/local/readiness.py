"""Tells the person at the terminal how many partitions have a leader, and why some cannot get one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from muster_cli.local.declare import CLUSTER
from muster_cli.local.report import stall_causes
from muster_coordinator.partition_numbers import partition_name
from muster_operator.api.models import PartitionState
from muster_operator.store.port import ClusterRecords, Store

PROGRESS_EVERY_S = 2.0
"""Seconds between two lines of progress while partitions have no leader."""


class Readiness:
    """Prints a line whenever all partitions have a leader, and progress while some have none.

    `before`: the store's content at the start. Its leaders are of an earlier run, whose pods are gone, so a partition
    counts as led only in a later epoch. `bootstrap` returns the addresses of the pods; `report` takes the lines.
    """

    def __init__(
        self, store: Store, before: ClusterRecords, bootstrap: Callable[[], str], report: Callable[[str], None]
    ) -> None:
        self._store = store
        self._led_before = _led_epochs(before)
        self._bootstrap = bootstrap
        self._report = report
        self._changed = asyncio.Event()
        self._was_ready = False
        self._causes: dict[int, str] = {}

    def look_again(self) -> None:
        """The store or a pod has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        complete, incomplete_since = False, time.monotonic()
        next_progress = incomplete_since + PROGRESS_EVERY_S
        while True:
            self._changed.clear()
            records = await self._store.observe(CLUSTER)
            self._report_stalled(records)
            led, wanted, now = self._led(records), len(_serving(records)), time.monotonic()
            if led == wanted and not complete:
                complete = True
                self._report_complete(wanted, now - incomplete_since)
            elif led < wanted:
                if complete:
                    complete, incomplete_since, next_progress = False, now, now + PROGRESS_EVERY_S
                if now >= next_progress:
                    self._report(f"{led} of {wanted} partitions have a leader")
                    next_progress = now + PROGRESS_EVERY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if complete else PROGRESS_EVERY_S)

    def _report_stalled(self, records: ClusterRecords) -> None:
        for partition, cause in stall_causes(records.partitions).items():
            if self._causes.get(partition) != cause:
                self._report(f"partition {partition_name(partition)} is stalled: {cause}")
                self._causes[partition] = cause

    def _report_complete(self, partitions: int, took_s: float) -> None:
        if self._was_ready:
            self._report(f"all {partitions} partitions have a leader again, after {took_s:.1f} s")
        else:
            self._was_ready = True
            self._report(f"ready bootstrap={self._bootstrap()}")

    def _led(self, records: ClusterRecords) -> int:
        led = _led_epochs(records)
        return sum(led.get(index, -1) > self._led_before.get(index, -1) for index in _serving(records))


def _serving(records: ClusterRecords) -> list[int]:
    return [index for topic in records.topics for index in topic.layout.indexes]


def _led_epochs(records: ClusterRecords) -> dict[int, int]:
    """Partition -> epoch, of the partitions that the record shows as led."""
    return {
        each.spec.index: each.status.epoch for each in records.partitions if each.status.state is PartitionState.LED
    }
