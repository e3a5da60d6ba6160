"""The metrics that the operator exports to Prometheus."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from muster_coordinator.podapi.client import PodApiError
from muster_operator.api.conditions import ConditionType, condition_status
from muster_operator.api.durations import parse_time
from muster_operator.api.models import CoordinatorCluster, PartitionState

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


BACKUP_TROUBLES = (ConditionType.BACKUP_TOO_OLD, ConditionType.BACKUP_FAILED, ConditionType.VERIFY_FAILED)


class OperatorMetrics:
    """All metrics of one operator process, on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        build = Gauge(
            "muster_operator_build_info", "1, with the version of the operator.", ["version"], registry=self.registry
        )
        build.labels(version("muster")).set(1)
        self.elections = Counter(
            "muster_operator_elections", "Answers to election calls.", ["result"], registry=self.registry
        )
        self.election_seconds = Histogram(
            "muster_operator_election_seconds",
            "From the election call to an active leader.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.failover_seconds = Histogram(
            "muster_operator_failover_seconds",
            "From the loss of a leader, as seen here, to an active one. kind: lost, or planned (a move).",
            ["kind"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "muster_operator_reconcile_seconds",
            "Duration of a reconcile: done, overtaken (another writer was first), failed, crashed.",
            ["result"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.removals = Counter(
            "muster_operator_replicas_removed",
            "Logs of replicas that left their sets, deleted.",
            registry=self.registry,
        )
        self.conflicts = Counter(
            "muster_operator_cas_conflicts", "Compare-and-swaps of a leadership that were lost.", registry=self.registry
        )
        self.leaderless = Gauge(
            "muster_operator_leaderless_partitions",
            "Offsets partitions without an active leader.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.failover_phase_seconds = Histogram(
            "muster_operator_failover_phase_seconds",
            "Phases of a failover when a leader is lost: noticed, from the pod's last word to the "
            "doubt whether it lives; decided, from there to the plan that elects another one; "
            "recorded, to the record of leader and epoch; called, to the call of that pod; led, to an"
            " active leader.",
            ["phase"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.leaderless_seconds = Counter(
            "muster_operator_leaderless_seconds",
            "Seconds that partitions were without an active leader, of all partitions together.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.partitions = Gauge(
            "muster_operator_partitions",
            "Offsets partitions by the state that the operator shows.",
            ["namespace", "cluster", "state"],
            registry=self.registry,
        )
        self.last_success = Gauge(
            "muster_operator_last_success_timestamp_seconds",
            "When the cluster was last reconciled without a failure, which is every 30 s at least.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "muster_operator_queue_seconds",
            "How long clusters wait for their reconcile.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.pod_call_seconds = Histogram(
            "muster_operator_pod_call_seconds",
            "Calls of the pod API, also those that failed: elect, resign, publish (metadata), access,"
            " create, remove, refresh (positions), fence (of a re-shard).",
            ["call"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.pod_call_errors = Counter(
            "muster_operator_pod_call_errors", "Calls of the pod API that failed.", ["call"], registry=self.registry
        )
        self.heard = Gauge(
            "muster_operator_heard_timestamp_seconds",
            "When a watch last told of an object of this kind; of list: when all of them were last listed.",
            ["resource"],
            registry=self.registry,
        )
        self.writes = Counter(
            "muster_operator_writes",
            "Writes to the API server, also those that failed: verb and resource as in rules of RBAC. Dry runs, which"
            " change nothing, do not count.",
            ["verb", "resource"],
            registry=self.registry,
        )
        self.certificates_end = Gauge(
            "muster_operator_certificates_end_timestamp_seconds",
            "When the first certificate of the cluster ends; 0: the operator keeps none.",
            ["namespace", "cluster"],
            registry=self.registry,
        )

        self.backup_taken = Gauge(
            "muster_operator_backup_timestamp_seconds",
            "The moment that the newest backup of the cluster shows; 0: there is none. Of clusters with spec.backup.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self.backup_troubles = Gauge(
            "muster_operator_backup_troubles",
            "1 while the cluster has the condition: BackupTooOld, BackupFailed or VerifyFailed.",
            ["namespace", "cluster", "condition"],
            registry=self.registry,
        )

    def show_backups(self, cluster: CoordinatorCluster) -> None:
        """Show what the status of a cluster says of its backups; nothing if none are declared."""
        meta, status = cluster.metadata, cluster.status
        if cluster.spec.backup is None:
            self._forget_backups(meta.namespace, meta.name)
            return
        taken = status.backups.last_taken if status.backups is not None else ""
        self.backup_taken.labels(meta.namespace, meta.name).set(parse_time(taken) if taken else 0)
        for each in BACKUP_TROUBLES:
            is_so = condition_status(status.conditions, each) == "True"
            self.backup_troubles.labels(meta.namespace, meta.name, each.value).set(is_so)

    def _forget_backups(self, namespace: str, cluster: str) -> None:
        with suppress(KeyError):
            self.backup_taken.remove(namespace, cluster)
        for each in BACKUP_TROUBLES:
            with suppress(KeyError):
                self.backup_troubles.remove(namespace, cluster, each.value)

    def forget(self, namespace: str, cluster: str) -> None:
        """Take out the gauges of a cluster that is gone: alerts would go on with its last state."""
        for metric in (self.leaderless, self.leaderless_seconds, self.certificates_end, self.last_success):
            with suppress(KeyError):  # what was never seen has none
                metric.remove(namespace, cluster)
        self._forget_backups(namespace, cluster)
        for state in PartitionState:
            with suppress(KeyError):
                self.partitions.remove(namespace, cluster, state.value)

    def count_partitions(self, namespace: str, cluster: str, states: Iterable[PartitionState]) -> None:
        """Show how many partitions of a cluster are in each state."""
        counts = Tally(states)
        for state in PartitionState:
            self.partitions.labels(namespace, cluster, state.value).set(counts[state])

    def hear(self, resource: str) -> None:
        """Note that the API server has told something of this kind of objects."""
        self.heard.labels(resource).set(time.time())

    def wrote(self, verb: str, resource: str) -> None:
        """Count a write to the API server."""
        self.writes.labels(verb, resource).inc()

    @contextmanager
    def pod_call(self, call: str) -> Iterator[None]:
        """Measure a call of the pod API, and count it if it raises PodApiError."""
        started = time.monotonic()
        try:
            yield
        except PodApiError:
            self.pod_call_errors.labels(call).inc()
            raise
        finally:
            self.pod_call_seconds.labels(call).observe(time.monotonic() - started)

    def render(self) -> bytes:
        """The page for Prometheus, in its text format."""
        return generate_latest(self.registry)
