"""The counters of shards and replicas, as plain integers: the hot path pays for an addition. `process.metrics` exports
them when it is scraped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from muster_coordinator.state_machine import StateMachine

BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0, 30_000.0)


class Histogram:
    """Durations in ms. `counts` has one more entry than the bounds, for durations above the last one."""

    def __init__(self, bounds_ms: tuple[float, ...] = BOUNDS_MS) -> None:
        self.bounds_ms = bounds_ms
        self.counts = [0] * (len(bounds_ms) + 1)
        self.sum_ms = 0.0

    def observe(self, duration_ms: float) -> None:
        self.counts[bisect_left(self.bounds_ms, duration_ms)] += 1
        self.sum_ms += duration_ms


class RunCounts:
    """Counts one kind of background work (cleaner, checkpoint, archive) over all partitions of the pod."""

    __slots__ = ("byte_count", "done", "failed", "given_up", "lag_bytes")

    def __init__(self) -> None:
        self.done = 0
        self.given_up = 0  # the log was needed for something else, or the leadership ended
        self.failed = 0
        self.byte_count = 0  # read and written to clean, written as checkpoints, or copied to the archive
        self.lag_bytes = 0  # of logs that were still to be gone through at the last look


class ShardMetrics:
    """Counters and histograms of one pod, shared by its shards. The histograms have Kafka's meaning
    (CoordinatorRuntimeMetrics), but per turn instead of per event: a turn runs all requests that arrived during the
    write before it.
    """

    def __init__(self) -> None:
        self.operation_errors = 0  # operations that raised: defects
        self.commit_timeouts = 0  # requests refused because their records did not commit in time
        self.records_loaded = 0
        self.unknown_records = 0  # records of unknown type that loading skipped
        self.loads = 0
        self.load_failures = 0
        self.storage_failures = 0
        self.replicas_removed = 0  # logs that left their sets, deleted
        self.load_times: defaultdict[str, Histogram] = defaultdict(Histogram)  # of one partition, by its topic
        self.load_slice_time = Histogram()  # CPU time between two returns of a load to the event loop
        self.queue_time = Histogram()  # from the first request of a turn to the turn
        self.processing_time = Histogram()  # of the operations of a turn
        self.flush_time = Histogram()  # of one durable write: from handing it over to the news that it is done
        self.elections: Counter[str] = Counter()  # calls, by outcome
        self.leaderships = 0  # those that became ACTIVE, self-nominations included
        self.step_downs = 0
        self.read_rounds = 0  # rounds in which a majority confirmed reads
        self.commit_time = Histogram()  # with several replicas: from the append to the commit, sampled
        self._past_events: Counter[str] = Counter()  # of partitions that are no longer led here

    def keep_events(self, machine: StateMachine) -> None:
        """Add the counts of `machine` to the totals for good: its partition is no longer led here."""
        self._past_events.update(machine.event_counts)

    def events(self, machines: Iterable[StateMachine]) -> Mapping[str, int]:
        """Returns the totals since the process started. `machines`: those of the partitions that are led now."""
        total = Counter(self._past_events)
        for machine in machines:
            total.update(machine.event_counts)
        return total


class CommitSample:
    """Measures the time from an append of a partition to its commit, of one append at a time."""

    def __init__(self, times: Histogram) -> None:
        self._times = times
        self._end_offset: int | None = None
        self._appended_s = 0.0

    def appended(self, end_offset: int, now_s: float) -> None:
        if self._end_offset is None:
            self._end_offset, self._appended_s = end_offset, now_s

    def committed(self, offset: int, now_s: float) -> None:
        if self._end_offset is not None and self._end_offset <= offset:
            self._times.observe((now_s - self._appended_s) * 1000)
            self._end_offset = None

    def forget(self) -> None:
        """The leadership ended."""
        self._end_offset = None
