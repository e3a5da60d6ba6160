"""The metrics that the operator exports to Prometheus."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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
            "Duration of a reconcile.",
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
        self.certificates_end = Gauge(
            "muster_operator_certificates_end_timestamp_seconds",
            "When the first certificate of the cluster ends; 0: the operator keeps none.",
            ["namespace", "cluster"],
            registry=self.registry,
        )

    def forget(self, namespace: str, cluster: str) -> None:
        """Take out the gauges of a cluster that is gone: alerts would go on with its last state."""
        for gauge in (self.leaderless, self.certificates_end):
            gauge.remove(namespace, cluster)

    def render(self) -> bytes:
        """The page for Prometheus, in its text format."""
        return generate_latest(self.registry)
