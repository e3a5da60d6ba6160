"""When `kubectl` names a new leader: what a person who watches the resources sees of a failover."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.faults import Fault
from tests.chaos.figures import percentile
from tests.chaos.history import History
from tests.chaos.observed import Place

from muster_coordinator.records.partitioner import partition_for

COLUMNS = "custom-columns=PARTITION:.spec.index,LEADER:.status.leader"
AGAIN_S = 0.2
"""Wait this long before another watch when the API server ended one."""


@dataclass(frozen=True)
class Named:
    """A line of `kubectl get offsetspartitions --watch`, read at `at` (seconds of the monotonic clock)."""

    at: float
    partition: int
    leader: str


class LeaderWatch:
    """Runs `kubectl get offsetspartitions --watch` for the time of the block; `seen` has its lines in order."""

    def __init__(self, namespace: str) -> None:
        self._command = ["kubectl", "-n", namespace, "get", "offsetspartitions", "--watch", "--no-headers"]
        self._command += ["-o", COLUMNS]
        self.seen: list[Named] = []
        self._ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="leader-watch", daemon=True)

    def __enter__(self) -> LeaderWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
            )
            assert self._process.stdout is not None
            for line in self._process.stdout:
                partition, _, leader = line.strip().partition(" ")
                if partition.isdigit():
                    self.seen.append(Named(time.monotonic(), int(partition), leader.strip()))
            self._process.wait()
            self._ended.wait(AGAIN_S)


def named_late(
    history: History, faults: Sequence[Fault], seen: Sequence[Named], places: Sequence[Place], partitions: int
) -> list[float]:
    """Seconds from the first commit at a new leader to the line that names its pod, one median per fault.

    Negative: named before it served. A partition that is never named counts until the end of the fault.
    """
    names = {place.kafka: place.name for place in places}
    medians = []
    for fault in faults:
        late = []
        for group in history.groups:
            served = next(
                (
                    (at, history.pods[pod])
                    for at, pod in zip(group.acked, group.pods, strict=True)
                    if fault.at <= at <= fault.until and history.pods[pod] not in fault.victims
                ),
                None,
            )
            was_hit = history.pods[group.coordinator_at(fault.at)] in fault.victims
            if served is None or not was_hit:
                continue
            at, address = served
            partition = partition_for(group.name, partitions)
            named = (
                each.at
                for each in seen
                if each.partition == partition and each.at >= fault.at and each.leader == names.get(address)
            )
            late.append(next(named, fault.until) - at)
        if late:
            medians.append(percentile(late, 0.5))
    return medians
