"""What shards count, as plain integers: the hot path pays an addition, ``process.metrics`` exports them when it is
scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from muster_coordinator.groups.coordinator import GroupCoordinator

BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0, 30_000.0)

EVENTS = ("offset_commits", "offset_deletions", "offset_expirations", "rebalances_completed")
"""The counters of a group coordinator (``groups.state.Counters``), with the meaning of Kafka's sensors."""


class Histogram:
    """Durations in ms. ``counts`` has one more entry than the bounds: what is above the last."""

    def __init__(self, bounds_ms: tuple[float, ...] = BOUNDS_MS) -> None:
        self.bounds_ms = bounds_ms
        self.counts = [0] * (len(bounds_ms) + 1)
        self.sum_ms = 0.0

    def observe(self, duration_ms: float) -> None:
        self.counts[bisect_left(self.bounds_ms, duration_ms)] += 1
        self.sum_ms += duration_ms


class RunCounts:
    """Of one kind of background work (cleaner, checkpoint, archive), over all partitions of the pod."""

    __slots__ = ("byte_count", "done", "failed", "given_up", "lag_bytes")

    def __init__(self) -> None:
        self.done = 0
        self.given_up = 0  # somebody else needed the log, or the leadership ended
        self.failed = 0
        self.byte_count = 0  # that runs have read and written to clean, written as checkpoints, copied to the archive
        self.lag_bytes = 0  # of logs that it has still to go through, when it looked last


class ShardMetrics:
    """Of one pod, shared by its shards. The histograms have Kafka's meaning (CoordinatorRuntimeMetrics), per turn
    instead of per event: a turn runs what came together while the write before was on its way.
    """

    def __init__(self) -> None:
        self.operation_errors = 0  # handlers that raised: defects
        self.commit_timeouts = 0  # requests refused because their records did not commit in time
        self.records_loaded = 0
        self.unknown_records = 0  # records of unknown type that loading skipped
        self.loads = 0
        self.load_failures = 0
        self.storage_failures = 0
        self.replicas_removed = 0  # logs that left their sets, deleted
        self.load_time = Histogram()  # of one partition
        self.load_slice_time = Histogram()  # CPU time between two returns of a load to the event loop
        self.queue_time = Histogram()  # from the first request of a turn to the turn
        self.processing_time = Histogram()  # of the operations of a turn
        self.flush_time = Histogram()  # of one durable write: from handing it over to the news that it is done
        self.elections: Counter[str] = Counter()  # calls, by outcome (``calls.CallStatus``)
        self.leaderships = 0  # that became ACTIVE, nominations of the replicas themselves included
        self.step_downs = 0
        self.read_rounds = 0  # confirmations of all reads that waited
        self.commit_time = Histogram()  # with several replicas: from the append to the commit, sampled
        self._past_events = dict.fromkeys(EVENTS, 0)  # of partitions that are not led here any more

    def keep_events(self, coordinator: GroupCoordinator) -> None:
        """Its partition is not led here any more; what it counted stays in the totals."""
        for event in EVENTS:
            self._past_events[event] += getattr(coordinator.counters, event)

    def events(self, coordinators: list[GroupCoordinator]) -> dict[str, int]:
        """Totals since the process started; ``coordinators`` are those of the partitions led now."""
        return {
            event: past + sum(getattr(c.counters, event) for c in coordinators)
            for event, past in self._past_events.items()
        }


class CommitSample:
    """Measures one append of a partition at a time, from here to its commit."""

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
