"""Prometheus metrics of `muster backup follow`, at a port of their own: how far its store is behind the cluster."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from muster_cli.backup.lag import Lag
from muster_cli.backup.manifest import Backup
from muster_cli.errors import CliError


class FollowMetrics:
    """The metrics of one follower. `cluster`: what it follows, a data directory or NAMESPACE/NAME."""

    def __init__(self, cluster: str, every_s: float) -> None:
        self.registry = CollectorRegistry()
        interval = Gauge(
            "muster_follow_interval_seconds",
            "Seconds from one backup of a follower to the next (`--every`).",
            ["cluster"],
            registry=self.registry,
        )
        interval.labels(cluster).set(every_s)
        self._taken = Gauge(
            "muster_follow_backup_timestamp_seconds",
            "The moment that the newest backup of the store shows; 0: there is none, or the store has not answered. "
            "What was committed since would be lost with the cluster.",
            ["cluster"],
            registry=self.registry,
        ).labels(cluster)
        self._records = Gauge(
            "muster_follow_lag_records",
            "Records that the newest backup lacked when the cluster last answered: counted before each backup.",
            ["cluster"],
            registry=self.registry,
        ).labels(cluster)

    def show_newest(self, backup: Backup) -> None:
        """The newest backup of the store is this one."""
        self._taken.set(backup.taken_at_ms / 1000)

    def show_lag(self, lag: Lag) -> None:
        """The cluster was asked, and may have answered."""
        if lag.records is not None:
            self._records.set(lag.records)

    def serve(self, host: str, port: int) -> None:
        """Answer Prometheus from a thread. Raises CliError."""
        try:
            start_http_server(port, host, self.registry)
        except OSError as error:
            raise CliError(f"--metrics-listen {host}:{port}: {error.strerror or error}") from error
