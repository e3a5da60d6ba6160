"""Renders Grafana dashboards from the tables of docs/metrics.md: a panel for every metric, and a page at a glance.

python hack/render_dashboards.py            print the names of the files
python hack/render_dashboards.py --write    write them, for kustomize and for the chart
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
FOLDERS = (ROOT / "config" / "monitoring" / "dashboards", ROOT / "charts" / "muster" / "files" / "dashboards")

GLANCE = (
    *("muster_operator_leaderless_partitions", "muster_operator_partitions", "muster_operator_failover_seconds"),
    *(
        "muster_operator_failover_phase_seconds",
        "muster_requests",
        "muster_request_seconds",
        "muster_offset_commits",
        "muster_commit_seconds",
    ),
    *("muster_flush_seconds", "muster_follower_lag", "muster_groups", "muster_consumer_groups", "muster_connections"),
    *("muster_connection_errors", "muster_storage_writable", "muster_damaged_replicas", "muster_operation_errors"),
    *("muster_mirror_lag", "muster_gateway_group_requests_waiting"),
)
"""The metrics to look at first, also from another dashboard's table."""

ROWS = {
    "coordinators": (
        ("Clients", r"connection|refused_requests|throttled|requests$|request_|site_fenced"),
        (
            "Partitions and replicas",
            r"partitions$|replicas|elections|leaderships|step_downs|confirmations|follower_lag",
        ),
        ("Storage and loading", r"storage|load|records_loaded|unknown_records|background|uncleanable|operation_errors"),
        ("Turns and commits", r"queue|processing|flush|commit"),
        ("Groups and offsets", r"groups|offset|rebalances|sessions"),
        ("Transactions", r"transaction|producer_ids"),
        ("Mirror", r"mirror|group_lag"),
        ("Other pods", r"peer"),
    ),
    "gateways": (
        ("Clients", r"gateway_(connections|connections_ended|held_bytes|bytes)$"),
        ("Clusters behind it", r"gateway_(connections_refused|nodes|reachable)$"),
        ("Groups", r"group_requests"),
        ("Groups that move", r"gateway_(leases|movable_)"),
    ),
    "operator": (
        ("Partitions and failovers", r"leaderless|partitions$|failover|election"),
        ("The operator itself", r"reconcile|queue|cas_conflicts|last_success|heard|build_info|replicas_removed|writes"),
        ("Pods and certificates", r"pod_call|certificates"),
        ("Backups", r"backup"),
    ),
    "followers": (("How far the second site is behind", r"follow_"),),
}
"""The rows of each table's dashboard: a title, and a pattern. A metric is in the first row whose pattern fits."""

TABLES = tuple(ROWS)

SUBJECTS = {"coordinators": ("Transactions", "Mirror", "Other pods")}
"""Rows that are tried before the others, because their metrics have words of others in their names."""

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 8, 8, 24
"""The sizes in Grafana's units."""


@dataclass(frozen=True)
class Metric:
    """One metric of the page. `table`: which of the tables has it. `labels`: those that the metric has of its own."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str
    table: str

    @property
    def is_of_cluster(self) -> bool:
        """True if its own labels say of which cluster it is: Prometheus calls that namespace `exported_namespace`."""
        return "namespace" in self.labels


def metrics() -> list[Metric]:
    """All metrics, in the order of the page."""
    found, table = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            table = next(name for name in TABLES if name.rstrip("s") in line)
        elif line.startswith("| `muster_"):
            names, kind, meaning = (cell.strip() for cell in line.strip("|").split(" | ", 2))
            labels = tuple(re.findall(r"`(\w+)`", kind))
            for name in re.findall(r"`(\w+)`", names):
                found.append(Metric(name, kind.split()[0], labels, meaning.strip(" |"), table))
    return found


def _filter(metric: Metric) -> str:
    if metric.is_of_cluster:
        return '{exported_namespace=~"$namespace"}'
    return "" if metric.table == "operator" else '{namespace=~"$namespace",pod=~"$pod"}'


def _by(metric: Metric) -> list[str]:
    labels = ["exported_namespace" if each == "namespace" else each for each in metric.labels]
    return labels if metric.table == "operator" else [*labels, "pod"]


def queries(metric: Metric) -> list[tuple[str, str]]:
    """(PromQL, legend) of each line of a panel."""
    by, where = _by(metric), _filter(metric)
    legend = " ".join("{{" + label + "}}" for label in by) or metric.name
    grouped = f"by ({', '.join(by)}) " if by else ""
    if metric.type == "counter":
        return [(f"sum {grouped}(rate({metric.name}_total{where}[$__rate_interval]))", legend)]
    if metric.type == "histogram":
        own = [each for each in by if each != "pod"]
        rate = f"sum by ({', '.join(['le', *own])}) (rate({metric.name}_bucket{where}[$__rate_interval]))"
        names = " ".join("{{" + label + "}}" for label in own)
        return [
            (f"histogram_quantile({quantile}, {rate})", f"{title} {names}".strip())
            for quantile, title in ((0.5, "median"), (0.99, "99 %"))
        ]
    if metric.name.endswith("_end_timestamp_seconds"):
        return [(f"min {grouped}({metric.name}{where} > 0) - time()", legend)]
    if metric.name.endswith("_timestamp_seconds"):
        return [(f"time() - max {grouped}({metric.name}{where})", legend)]
    return [(f"sum {grouped}({metric.name}{where})", legend)]


def _unit(metric: Metric) -> str:
    if metric.type == "counter":
        return "Bps" if "bytes" in metric.name else "short" if "seconds" in metric.name else "cps"
    return "s" if metric.name.endswith("_seconds") else "bytes" if "bytes" in metric.name else "short"


def _title(metric: Metric) -> str:
    words = re.sub(r"^muster_(gateway_|operator_)?", "", metric.name)
    words = re.sub(r"_timestamp_seconds$", "", words).removesuffix("_seconds").replace("_", " ")
    words = {"certificates end": "certificates: time left", "heard": "API server: age of what it told last"}.get(
        words, words.replace("last success", "age of the last good reconcile")
    )
    return words[0].upper() + words[1:] + (" per second" if metric.type == "counter" else "")


def _panel(metric: Metric, number: int, at: tuple[int, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": _title(metric),
        "description": f"{metric.name}: {metric.meaning}",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": at[0], "y": at[1], "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": _unit(metric), "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": "AB"[place], "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(queries(metric))
        ],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _dashboard(name: str, title: str, rows: Iterable[tuple[str, Sequence[Metric]]]) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    line = 0
    for heading, shown in rows:
        place = {"x": 0, "y": line, "w": COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "gridPos": place})
        line += 1
        per_line = COLUMNS // PANEL_WIDTH
        for place_in_row, metric in enumerate(shown):
            at = (place_in_row % per_line * PANEL_WIDTH, line + place_in_row // per_line * PANEL_HEIGHT)
            panels.append(_panel(metric, len(panels) + 1, at))
        line += -(-len(shown) // per_line) * PANEL_HEIGHT
    of = {"gateways": "muster_gateway_connections", "followers": "muster_follow_interval_seconds"}.get(
        name, "muster_replicas"
    )
    return {
        "uid": f"muster-{name}",
        "title": f"Muster: {title}",
        "tags": ["muster"],
        "editable": True,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["muster"], "title": "Muster", "asDropdown": True, "includeVars": True}
        ],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("namespace", f"label_values({of}, namespace)"),
                _variable("pod", f'label_values({of}{{namespace=~"$namespace"}}, pod)'),
            ]
        },
        "panels": panels,
    }


def _in_rows(table: str, shown: Sequence[Metric]) -> list[tuple[str, list[Metric]]]:
    """The metrics of a table by row. KeyError if one is in none."""
    first = SUBJECTS.get(table, ())
    order = sorted(ROWS[table], key=lambda row: row[0] not in first)
    rows: dict[str, list[Metric]] = {title: [] for title, _ in ROWS[table]}
    for metric in shown:
        title = next((title for title, pattern in order if re.search(pattern, metric.name)), "")
        rows[title].append(metric)
    return list(rows.items())


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards, by name of the file."""
    known = metrics()
    by_name = {each.name: each for each in known}
    made = {"glance": _dashboard("glance", "at a glance", [("At a glance", [by_name[each] for each in GLANCE])])}
    for table in ROWS:
        rows = _in_rows(table, [each for each in known if each.table == table])
        made[table] = _dashboard(table, table, rows)
    return {f"muster-{name}.json": dashboard for name, dashboard in made.items()}


def render(dashboard: dict[str, Any]) -> str:
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    for name, dashboard in dashboards().items():
        for folder in FOLDERS:
            if sys.argv[1:]:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(render(dashboard), encoding="utf-8")
            else:
                print(folder / name)


if __name__ == "__main__":
    main()
