"""Prometheus metrics of a pod. The hot path only counts integers; this collector reads them when it is scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.listener import KafkaListeners
from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.mirroring.mirror import Mirror
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.process.mirror_metrics import mirror_metrics
from muster_coordinator.shard.metrics import Histogram
from muster_coordinator.shard.ports import Clock
from muster_coordinator.states import ShardState
from muster_coordinator.wire.served import KAFKA_4_3

_ERROR_NAMES = {int(each): each.name for each in ErrorCode}
_EVENT_TEXTS = {
    "offset_commits": "Offsets committed (Kafka: offset-commit-count).",
    "offset_deletions": "Offsets deleted by request (Kafka: offset-deletion-count).",
    "offset_expirations": "Offsets that expired (Kafka: offset-expiration-count).",
    "rebalances_completed": "Rebalances completed (Kafka: group-completed-rebalance-count).",
    "sessions_ended": "Members that were removed because they were silent for their session timeout.",
    "transactions_committed": "Transactions whose commit was decided.",
    "transactions_aborted": "Transactions whose abort was decided.",
    "transactions_timed_out": "Transactions aborted because their time was over.",
    "transaction_markers_refused": "Attempts to write a marker that failed and are repeated.",
    "transactional_ids_expired": "Transactional ids forgotten after transactional.id.expiration.ms.",
    "producer_ids_handed_out": "Producer ids given to producers.",
    "mirror_records_taken_in": "Records of the upstream's __consumer_offsets that were taken over.",
    "mirror_records_left_out": "Records of the upstream about groups that this cluster coordinates, but for those that "
    "its pods write: a client bypasses it.",
}

_GAUGE_TEXTS: dict[str, tuple[str, list[str]]] = {
    "groups": ("Classic groups of active partitions by state.", ["state"]),
    "consumer_groups": ("Groups of the consumer protocol of active partitions by state.", ["state"]),
    "offsets": ("Committed offsets of active partitions.", []),
    "transactional_ids": (
        "Transactional ids of active partitions; those in Ongoing, PrepareCommit and PrepareAbort"
        " have an open transaction.",
        ["state"],
    ),
    "transaction_markers_missing": (
        "Partitions of transactions whose end is decided that have no marker yet (Kafka: "
        "UnknownDestinationQueueSize and LogAppendRetryQueueSize, and what is on its way).",
        [],
    ),
}
"""Text and labels."""

_API_NAMES = {api.key: api.name for api in KAFKA_4_3.all}


class PodCollector(Collector):
    """Names and meanings are listed in docs/metrics.md; a test pins them."""

    def __init__(
        self,
        listener: KafkaListeners,
        manager: ReplicaManager,
        network: PeerNetwork,
        mirror: Mirror | None,
        site: Callable[[], SiteStatus | None],
        clock: Clock,
    ) -> None:
        """`site`: the pod's right to answer clients; None: it is of no site."""
        self._listener = listener
        self._manager = manager
        self._clock = clock
        self._network = network
        self._following = mirror
        self._site = site

    def collect(self) -> Iterator[Metric]:
        yield from self._connections()
        yield from self._shards()
        yield from self._background()
        yield from self._machines()
        yield from self._replication()
        yield from self._peers()
        yield from mirror_metrics(self._following)

    def _connections(self) -> Iterator[Metric]:
        listener = self._listener.state
        yield GaugeMetricFamily("muster_connections", "Open Kafka connections.", len(listener.connections))
        yield CounterMetricFamily("muster_connections_accepted", "Kafka connections accepted.", listener.accepted)
        yield GaugeMetricFamily(
            "muster_connection_bytes",
            "Bytes that connections hold of requests and answers (limit: muster.max.buffered.bytes).",
            listener.held_bytes,
        )
        errors = CounterMetricFamily(
            "muster_connection_errors",
            "Connections answered with an error or closed by the pod: frame_too_large, "
            "malformed_request, unsupported_request, unsupported_api_versions, too_many_connections, "
            "too_many_of_address, too_many_of_user, too_many_bytes, no_descriptors, idle, other_site; logins: "
            "login, sasl_mechanism, sasl_state, login_timeout, too_many_logins, user_removed, "
            "no_principal.",
            labels=["reason"],
        )
        for reason, count in sorted(listener.connection_errors.items()):
            errors.add_metric([reason], count)
        yield errors
        refused = CounterMetricFamily(
            "muster_refused_requests",
            "Times that an ACL refused what a client asked for; lists that leave something out do not count.",
            labels=["resource"],
        )
        for resource, count in sorted(listener.audit.refused.items()):
            refused.add_metric([resource], count)
        yield refused
        yield CounterMetricFamily(
            "muster_throttled_requests",
            "Requests above the rate of their user, after which their connection rests.",
            listener.throttled,
        )
        requests = CounterMetricFamily("muster_requests", "Requests by Kafka API.", labels=["api"])
        for key, count in sorted(listener.requests.items()):
            requests.add_metric([_API_NAMES[key]], count)
        yield requests
        yield from self._felt()
        site = self._site()
        yield GaugeMetricFamily(
            "muster_site_fenced",
            "1: the pod answers no client, because another site has taken over or it cannot read the claims; 0: it "
            "may, or is of no site.",
            int(site is not None and not site.held),
        )

    def _felt(self) -> Iterator[Metric]:
        """The time and the errors of requests, as clients feel them."""
        counts = self._listener.state.counts
        times = HistogramMetricFamily(
            "muster_request_seconds",
            "Requests by Kafka API, from the moment when they had come whole to their answer at the socket. JoinGroup, "
            "SyncGroup and Fetch wait for others, which is part of it.",
            labels=["api"],
        )
        for key, histogram in sorted(counts.times.items()):
            _add_histogram(times, [_API_NAMES[key]], histogram)
        yield times
        errors = CounterMetricFamily(
            "muster_request_errors",
            "Error codes in answers, by Kafka API and name: one for each partition, group or resource that has it.",
            labels=["api", "error"],
        )
        for (key, code), count in sorted(counts.errors.items()):
            errors.add_metric([_API_NAMES[key], _ERROR_NAMES.get(code, str(code))], count)
        yield errors

    def _shards(self) -> Iterator[Metric]:
        manager = self._manager
        states = Counter(shard.state for shard in manager.shards.values())
        partitions = GaugeMetricFamily(
            "muster_partitions", "Offsets partitions that this pod leads or tried to, by shard state.", labels=["state"]
        )
        for state in ShardState:
            partitions.add_metric([state.value], states[state])
        yield partitions
        yield GaugeMetricFamily("muster_replicas", "Replicas of offsets partitions on this pod.", len(manager.replicas))
        health = manager.health
        yield GaugeMetricFamily(
            "muster_damaged_replicas",
            "Replicas whose log must not be served.",
            len(health.damage.keys() | health.stopped.keys()),
        )
        yield GaugeMetricFamily(
            "muster_doubled_replicas",
            "Replicas that take no part while another pod has their log as well.",
            len(health.doubled),
        )
        yield GaugeMetricFamily(
            "muster_storage_writable",
            "0 while the pod's storage takes no writes.",
            0 if health.cannot_write else 1,
        )
        counts = manager.metrics
        for name, text, value in (
            ("muster_storage_failures", "Times that the pod's storage stopped taking writes.", counts.storage_failures),
            ("muster_operation_errors", "Operations that failed by a defect.", counts.operation_errors),
            (
                "muster_commit_timeouts",
                "Requests whose records did not commit within offsets.commit.timeout.ms.",
                counts.commit_timeouts,
            ),
            ("muster_loads", "Partitions loaded.", counts.loads),
            ("muster_load_failures", "Loads that failed.", counts.load_failures),
            ("muster_records_loaded", "Records read by loading.", counts.records_loaded),
            ("muster_unknown_records", "Records of unknown type that loading skipped.", counts.unknown_records),
            (
                "muster_leaderships",
                "Leaderships that became active here, by the operator's call or by self-nomination.",
                counts.leaderships,
            ),
            (
                "muster_replicas_removed",
                "Logs that left their sets, deleted.",
                counts.replicas_removed,
            ),
            (
                "muster_step_downs",
                "Leaderships that ended here: a higher epoch, or no majority heard.",
                counts.step_downs,
            ),
            ("muster_read_confirmations", "Rounds in which a majority confirmed reads.", counts.read_rounds),
        ):
            yield CounterMetricFamily(name, text, value)
        for name, text, histogram in (
            (
                "muster_load_slice_seconds",
                "CPU time of a load between two turns of the event loop: no request of another partition "
                "waits longer for it.",
                counts.load_slice_time,
            ),
            (
                "muster_queue_seconds",
                "Wait of a turn's first request until the turn (Kafka: event-queue-time-ms).",
                counts.queue_time,
            ),
            (
                "muster_processing_seconds",
                "Operations of a turn (Kafka: event-processing-time-ms).",
                counts.processing_time,
            ),
            ("muster_flush_seconds", "Durable writes of a turn (Kafka: batch-flush-time-ms).", counts.flush_time),
            (
                "muster_commit_seconds",
                "Appends until their commit by several replicas; one append of a partition at a time is measured.",
                counts.commit_time,
            ),
        ):
            yield _histogram(name, text, histogram)
        loads = HistogramMetricFamily(
            "muster_load_seconds", "Loads of a partition, by its topic (Kafka: partition-load-time).", labels=["topic"]
        )
        for topic, histogram in sorted(counts.load_times.items()):
            _add_histogram(loads, [topic], histogram)
        yield loads

    def _background(self) -> Iterator[Metric]:
        runs = CounterMetricFamily(
            "muster_background_runs",
            "Runs of cleaner (one log), checkpoint (one partition) and archive (one segment): done; "
            "given_up, because other work needed the log; failed.",
            labels=["kind", "outcome"],
        )
        taken = CounterMetricFamily(
            "muster_background_bytes",
            "Bytes read and written to clean, written as checkpoints, archived.",
            labels=["kind"],
        )
        lag = GaugeMetricFamily(
            "muster_background_lag_bytes",
            "Bytes of logs that are still to be gone through: closed segments that were not cleaned; "
            "records that a load reads after the checkpoints; closed segments that are not in the "
            "archive, for which the cleaner waits.",
            labels=["kind"],
        )
        for kind, counts in self._manager.background_counts.items():
            for outcome in ("done", "given_up", "failed"):
                runs.add_metric([kind, outcome], getattr(counts, outcome))
            taken.add_metric([kind], counts.byte_count)
            lag.add_metric([kind], counts.lag_bytes)
        yield from (runs, taken, lag)
        uncleanable = sum(bool(r.is_open and r.log.cannot_clean) for r in self._manager.replicas.values())
        yield GaugeMetricFamily(
            "muster_uncleanable_logs", "Logs that the cleaner cannot read and leaves as they are.", uncleanable
        )

    def _machines(self) -> Iterator[Metric]:
        machines = [s.machine for s in self._manager.shards.values() if s.state is ShardState.ACTIVE]
        totals: Counter[tuple[str, str]] = Counter()
        for machine in machines:
            totals.update(machine.gauges)
        for name, (text, labels) in _GAUGE_TEXTS.items():
            gauge = GaugeMetricFamily(f"muster_{name}", text, labels=labels)
            states = {state: count for (metric, state), count in totals.items() if metric == name}
            for state, count in sorted(states.items() if labels else [("", sum(states.values()))]):
                gauge.add_metric([state] * len(labels), count)
            yield gauge
        events = self._manager.metrics.events(machines)
        for event, text in _EVENT_TEXTS.items():
            yield CounterMetricFamily(f"muster_{event}", text, events[event])

    def _replication(self) -> Iterator[Metric]:
        elections = CounterMetricFamily(
            "muster_elections",
            "Calls of onElection: accepted, loading, staleEpoch, betterLog, leaderLives, noMajority, ...",
            labels=["outcome"],
        )
        for outcome, count in sorted(self._manager.metrics.elections.items()):
            elections.add_metric([outcome], count)
        yield elections
        cores = [host.core for host in self._manager.hosts.values() if host.core is not None]
        lags = [core.log.end - max(end, 0) for core in cores for _, end, _ in core.followers]
        yield GaugeMetricFamily(
            "muster_follower_lag",
            "Records that the follower furthest behind lacks of a partition led here.",
            max(lags, default=0),
        )
        now_ms = self._clock.monotonic_ms()
        yield GaugeMetricFamily(
            "muster_follower_lag_seconds",
            "For how long the follower furthest behind has lacked records of a partition led here; 0: all have all.",
            max((core.longest_behind_ms(now_ms) for core in cores), default=0) / 1000,
        )
        yield GaugeMetricFamily(
            "muster_rebuilding_replicas",
            "Replicas that lack what they acknowledged once, and are counted nowhere until they have caught up.",
            sum(core.promise.rebuilding for core in cores),
        )

    def _peers(self) -> Iterator[Metric]:
        network, counters = self._network, self._network.counters
        up = GaugeMetricFamily(
            "muster_peer_up",
            "1: this pod hears that one; 0: refused, closed or silent. Only pods that share a partition.",
            labels=["peer"],
        )
        for peer, heard in sorted(network.states.items()):
            up.add_metric([peer], int(heard))
        yield up
        yield GaugeMetricFamily(
            "muster_peer_buffered_bytes",
            "Bytes that wait to be sent to other pods (limit for each: muster.peer.buffer.bytes).",
            network.waiting_bytes,
        )
        for name, text, value in (
            ("muster_peer_messages_sent", "Messages to replicas in other pods.", counters.messages_sent),
            ("muster_peer_bytes_sent", "Bytes of those messages.", counters.bytes_sent),
            ("muster_peer_messages_received", "Messages from replicas in other pods.", counters.messages_received),
            ("muster_peer_bytes_received", "Bytes of those messages.", counters.bytes_received),
        ):
            yield CounterMetricFamily(name, text, value)
        for name, text, reasons in (
            (
                "muster_peer_messages_dropped",
                "Messages that were not sent, and are sent again when the protocol misses them: "
                "buffer_full (a slow pod), not_connected, unknown_replica, too_large, doubled (two pods "
                "have the replica; also what came from it and was not taken).",
                counters.dropped,
            ),
            (
                "muster_peer_connection_errors",
                "Connections between pods closed for what came: malformed, frame_too_large, "
                "wrong_version, wrong_cluster, wrong_pod, same_name, wrong_name (its certificate is of "
                "another pod), no_hello, asks (a pod asks, and nothing here answers), "
                "too_many_connections, replaced (two pods with one name).",
                counters.errors,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=["reason"])
            for reason, count in sorted(reasons.items()):
                family.add_metric([reason], count)
            yield family


def _histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=[])
    _add_histogram(family, [], histogram)
    return family


def _add_histogram(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    buckets: list[tuple[str, float]] = []
    total = 0
    bounds = [*(str(bound_ms / 1000) for bound_ms in histogram.bounds_ms), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.sum_ms / 1000)


class PodMetrics:
    """The registry of one pod; `render` is the body of GET /metrics."""

    def __init__(
        self,
        listener: KafkaListeners,
        manager: ReplicaManager,
        network: PeerNetwork,
        mirror: Mirror | None,
        site: Callable[[], SiteStatus | None],
        clock: Clock,
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(PodCollector(listener, manager, network, mirror, site, clock))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)
