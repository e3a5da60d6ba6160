"""The alerts (hack/alerts.py): promtool evaluates each on the series of its fault: it fires, and goes out."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.kube.test_chart import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "hack"))

import render_alerts  # hack/ is no package
from alerts import ALERTS, TRIED, TRIED_BEFORE_KAFKA, TRIED_ON_LOGS, TRIED_ON_SITES, Alert

from muster_operator.metrics import OperatorMetrics

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")

POD = {"namespace": "kafka", "pod": "muster-0"}
CLUSTER = {"namespace": "muster-system", "exported_namespace": "kafka", "cluster": "muster"}
TOO_OLD, NOT_MADE, DAMAGED = (
    {**CLUSTER, "condition": condition} for condition in ("BackupTooOld", "BackupFailed", "VerifyFailed")
)
BEGINS, ENDS, EVALUATED_AFTER = 120, 240, 480
"""Minutes at which each fault begins and ends, and at which everything has gone out."""


@dataclass(frozen=True)
class Fault:
    """The metric `name` with `more` labels beside those of a pod, before, during and after a fault.

    `grows`: it is a counter, of which `after` is not used. `born`: the counter is not there before. `written`: its
    values in place of those. `beside`: another metric of the same labels that is there all the time, and its value.
    """

    name: str
    before: float = 0
    during: float = 1
    labels: dict[str, str] = field(default_factory=lambda: dict(POD))
    more: dict[str, str] = field(default_factory=dict)
    alert_labels: dict[str, str] | None = None
    grows: bool = False
    born: bool = False
    written: str = ""
    beside: tuple[tuple[str, float], ...] = ()

    @property
    def series(self) -> list[dict[str, str]]:
        labels = ",".join(f'{name}="{value}"' for name, value in {**self.labels, **self.more}.items())
        found = [(self.name, self.values), *((name, f"{value}x{EVALUATED_AFTER}") for name, value in self.beside)]
        return [{"series": f"{name}{{{labels}}}", "values": values} for name, values in found]

    @property
    def values(self) -> str:
        """The series as promtool reads them."""
        if self.written:
            return self.written
        lasts = ENDS - BEGINS
        if self.grows:
            before = f"_x{BEGINS}" if self.born else f"0x{BEGINS}"
            top = 1 + self.during * lasts
            return f"{before} 1+{self.during}x{lasts} {top}x{EVALUATED_AFTER}"
        return f"{self.before}x{BEGINS} {self.during}x{lasts} {self.before}x{EVALUATED_AFTER}"

    @property
    def fired_labels(self) -> dict[str, str]:
        return {**self.labels, **self.more} if self.alert_labels is None else self.alert_labels


def counter(name: str, **more: str) -> Fault:
    """A labelled counter that is not there before its first event; one without labels is."""
    return Fault(name, more=more, grows=True, born=bool(more))


def follower(during: str) -> Fault:
    """A follower whose backups are always of this minute, but for the fault."""
    return Fault(
        "muster_follow_backup_timestamp_seconds",
        more={"cluster": "shop/muster"},
        alert_labels={"namespace": "kafka", "cluster": "shop/muster"},
        written=f"0+60x{BEGINS - 1} {during} {ENDS * 60}+60x{EVALUATED_AFTER}",
        beside=(("muster_follow_interval_seconds", 60),),
    )


FAULTS: dict[str, tuple[Fault, ...]] = {
    "MusterPartitionsLeaderless": (Fault("muster_operator_leaderless_partitions", 0, 3, CLUSTER),),
    "MusterPartitionFailed": (Fault("muster_partitions", more={"state": "FAILED"}),),
    "MusterFailoversOften": (
        Fault(
            "muster_operator_failover_seconds_count",
            labels={"namespace": "muster-system"},
            more={"kind": "lost"},
            alert_labels={"namespace": "muster-system"},
            during=3,
            grows=True,
        ),
    ),
    "MusterPeerNotHeard": (Fault("muster_peer_up", 1, 0, more={"peer": "muster-1"}),),
    "MusterReplicasDoubled": (
        Fault("muster_doubled_replicas"),
        counter("muster_peer_messages_dropped_total", reason="doubled"),
        counter("muster_peer_messages_dropped_total", reason="too_large"),
        counter("muster_peer_connection_errors_total", reason="replaced"),
    ),
    "MusterReplicasBehind": (Fault("muster_follower_lag", 10, 200_000), Fault("muster_rebuilding_replicas")),
    "MusterReconcileFails": tuple(
        Fault(
            "muster_operator_reconcile_seconds_count",
            labels={"namespace": "muster-system", "pod": "muster-operator-0"},
            more={"result": result},
            alert_labels={"namespace": "muster-system", "pod": "muster-operator-0"},
            grows=True,
        )
        for result in ("failed", "crashed")
    ),
    "MusterCertificatesDue": (
        Fault(
            "muster_operator_certificates_end_timestamp_seconds",
            before=90 * 86400,
            during=5 * 86400,
            labels=CLUSTER,
        ),
    ),
    "MusterBackupTooOld": (Fault("muster_operator_backup_troubles", labels=TOO_OLD, alert_labels=CLUSTER),),
    "MusterBackupFailed": (Fault("muster_operator_backup_troubles", labels=NOT_MADE, alert_labels=CLUSTER),),
    "MusterBackupVerifyFailed": (Fault("muster_operator_backup_troubles", labels=DAMAGED, alert_labels=CLUSTER),),
    "MusterSiteFenced": (Fault("muster_site_fenced"),),
    "MusterFollowerBehind": (
        follower(f"{(BEGINS - 1) * 60}x{ENDS - BEGINS - 1}"),
        follower(f"0x{ENDS - BEGINS - 1}"),
        follower(f"_x{ENDS - BEGINS}"),
    ),
    "MusterStorageNotWritable": (Fault("muster_storage_writable", 1, 0),),
    "MusterReplicaDamaged": (Fault("muster_damaged_replicas"),),
    "MusterLogNotCleaned": (
        Fault("muster_uncleanable_logs"),
        Fault("muster_background_runs_total", more={"kind": "archive", "outcome": "failed"}, grows=True),
    ),
    "MusterArchiveBehind": (Fault("muster_background_lag_bytes", 0, 16384, more={"kind": "archive"}),),
    "MusterCommitsTimeOut": (counter("muster_commit_timeouts_total"),),
    "MusterOperationErrors": (counter("muster_operation_errors_total"),),
    "MusterLoadsFail": (counter("muster_load_failures_total"),),
    "MusterClientsRefused": tuple(
        counter("muster_connection_errors_total", reason=reason)
        for reason in (
            *("too_many_connections", "too_many_of_address", "too_many_of_user", "too_many_bytes"),
            "no_descriptors",
        )
    ),
    "MusterTransactionsHang": (Fault("muster_transaction_markers_missing"),),
    "MusterMirrorStopped": (Fault("muster_mirror_problems"),),
    "MusterMirrorBypassed": (counter("muster_mirror_records_left_out_total"),),
    "MusterWriteBackStopped": (
        Fault("muster_mirror_write_back_refused"),
        Fault("muster_mirror_write_back_age_seconds", before=5, during=100),
    ),
    "MusterUpstreamRefusesLogin": (
        Fault("muster_mirror_connections_refused_total", more={"reason": "login"}, grows=True),
        counter("muster_gateway_connections_refused_total", cluster="upstream", reason="tls"),
    ),
    "MusterGatewayCutOff": (Fault("muster_gateway_reachable", 1, 0, more={"cluster": "upstream"}),),
    "MusterGatewayRequestsWait": (Fault("muster_gateway_group_requests_waiting"),),
}
ABSENT = "MusterOperatorAway"
"""The one alert on a metric that is away."""


def test_every_alert_has_a_fault_and_every_fault_an_alert() -> None:
    assert {*FAULTS, ABSENT} == {alert.name for alert in ALERTS}
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    assert {*TRIED, *TRIED_ON_LOGS, *TRIED_BEFORE_KAFKA, *TRIED_ON_SITES} == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("file", render_alerts.FILES, ids=lambda file: file.name)
def test_what_is_rendered_from_the_table_is_up_to_date(file: Path) -> None:
    assert file.read_text() == render_alerts.FILES[file](), "python hack/render_alerts.py --write"


def promtool(tmp_path: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    groups = yaml.safe_load(render_alerts.prometheus_rule())["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    assert PROMTOOL is not None
    command = [PROMTOOL, "test", "rules", "tests.yaml"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)


def expected(alert: Alert, labels: dict[str, str]) -> dict[str, Any]:
    """The alert as promtool compares it: labels, and annotations with what Prometheus puts into their templates."""
    (rule,) = [r for group in render_alerts.groups() for r in group["rules"] if r["alert"] == alert.name]
    said = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], text)
        for name, text in rule["annotations"].items()
    }
    return {"exp_labels": {**labels, "severity": alert.severity}, "exp_annotations": said}


def looked_at(alert: Alert, labels: dict[str, str] | None) -> dict[str, Any]:
    """Alerts at three times: before the fault, late in it, and long after it."""
    fired = [expected(alert, labels)] if labels is not None else []
    times = (BEGINS - 1, []), (ENDS - 1, fired), (EVALUATED_AFTER - 1, [])
    return {
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": alerts} for minute, alerts in times
        ]
    }


@needs_promtool
@pytest.mark.parametrize("alert", [each for each in ALERTS if each.name in FAULTS], ids=lambda each: each.name)
def test_alert_fires_on_each_of_its_faults_and_goes_out_after_it(alert: Alert, tmp_path: Path) -> None:
    tests = [
        {"interval": "1m", "input_series": fault.series, **looked_at(alert, fault.fired_labels)}
        for fault in FAULTS[alert.name]
    ]
    outcome = promtool(tmp_path, tests)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    never = [{**test, **looked_at(alert, None)} for test in tests]
    assert promtool(tmp_path, never).returncode != 0, "promtool notices an alert that it does not expect"


@needs_promtool
def test_operator_that_is_away_is_noticed(tmp_path: Path) -> None:
    (alert,) = [each for each in ALERTS if each.name == ABSENT]
    values = f"1x{BEGINS} _x{ENDS - BEGINS - 1} 1x{EVALUATED_AFTER}"
    series = {"series": 'muster_operator_build_info{version="0.1.0"}', "values": values}
    outcome = promtool(tmp_path, [{"interval": "1m", "input_series": [series], **looked_at(alert, {})}])
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_page_names_every_metric_of_the_operator_and_alerts_ask_for_metrics_of_the_page() -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    families = OperatorMetrics().registry.collect()
    assert {family.name for family in families} == set(re.findall(r"`(muster_operator_\w+)`", page))
    asked = {name for alert in ALERTS for name in re.findall(r"muster_\w+", alert.expression)}
    assert len(asked) > 20
    assert {re.sub(r"_(total|count)$", "", name) for name in asked} <= set(re.findall(r"`(muster_\w+)`", page))


def test_gauges_of_a_cluster_that_is_gone_are_taken_out() -> None:
    metrics = OperatorMetrics()
    for name in ("stays", "goes"):
        metrics.leaderless.labels("ns", name).set(3)
        metrics.certificates_end.labels("ns", name).set(1)
        metrics.backup_taken.labels("ns", name).set(1)
        metrics.backup_troubles.labels("ns", name, "BackupTooOld").set(1)
    metrics.forget("ns", "goes")
    page = metrics.render().decode()
    assert 'cluster="stays"' in page
    assert "goes" not in page


def test_runbook_says_of_every_alert_what_to_look_at_and_when_it_is_over() -> None:
    for alert in ALERTS:
        assert alert.look
        assert all(text.endswith(".") for text in (alert.means, alert.clients, alert.do, alert.over))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_commands_of_the_runbook_ask_for_nothing_that_the_alert_does_not_have(alert: Alert) -> None:
    named = set(re.findall(r"\$[A-Z]+", " ".join(alert.look)))
    fired = [fault.fired_labels for fault in FAULTS[alert.name]] if alert.name in FAULTS else [{}]
    for labels in fired:
        has = {f"${label.upper()}" for label in ("namespace", "pod") if label in labels}
        has |= {"$CLUSTER"} if {"cluster", "exported_namespace"} <= labels.keys() else set()
        assert named <= has
