"""The Grafana dashboards: rendered from docs/metrics.md, with queries that Prometheus takes, on metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.kube.test_chart import REPOSITORY, helm_template, needs_helm

sys.path.insert(0, str(REPOSITORY / "hack"))

import render_dashboards  # hack/ is no package

from muster_operator.metrics import OperatorMetrics

PROMTOOL = shutil.which("promtool")
NAMES = [f"muster-{name}.json" for name in ("glance", "coordinators", "gateways", "operator", "followers")]


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize("folder", render_dashboards.FOLDERS, ids=lambda folder: folder.parent.name)
def test_files_are_what_is_rendered_from_the_page_of_metrics(folder: Path) -> None:
    found = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    rendered = {name: render_dashboards.render(each) for name, each in render_dashboards.dashboards().items()}
    assert found == rendered, "python hack/render_dashboards.py --write"
    assert sorted(found) == sorted(NAMES)


def test_every_metric_has_a_panel_and_every_query_names_a_metric_of_the_page() -> None:
    known = {each.name: each for each in render_dashboards.metrics()}
    assert len(known) > 80
    shown = set()
    for dashboard in render_dashboards.dashboards().values():
        for expression in expressions(dashboard):
            (name,) = set(re.findall(r"muster_\w+", expression))
            family = re.sub(r"_bucket$", "", name) if name.endswith("_bucket") else name.removesuffix("_total")
            kind = {"_bucket": "histogram", "_total": "counter"}.get(name[len(family) :], "gauge")
            assert known[family].type == kind, expression
            shown.add(family)
    assert shown == known.keys()


def test_queries_about_the_operator_sum_by_labels_that_its_metrics_have() -> None:
    families = {each.name: each for each in render_dashboards.metrics() if each.table == "operator"}
    labels = {
        collector.describe()[0].name: set(collector._labelnames)
        for collector in OperatorMetrics().registry._collector_to_names
    }
    assert {name: set(each.labels) for name, each in families.items()} == labels


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")
@pytest.mark.parametrize("name", NAMES)
def test_prometheus_takes_every_query(name: str, tmp_path: Path) -> None:
    dashboard = render_dashboards.dashboards()[name]
    queries = [
        each.replace("$__rate_interval", "5m").replace("$namespace", ".*").replace("$pod", ".*")
        for each in expressions(dashboard)
    ]
    assert queries
    assert not [each for each in queries if "$" in each]
    rules = [{"record": f"query:{number}", "expr": each} for number, each in enumerate(queries)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert PROMTOOL is not None
    checked = subprocess.run(
        [PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_numbers_of_their_own_and_do_not_cover_each_other(name: str) -> None:
    panels = render_dashboards.dashboards()[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (column, line)
        for at in (panel["gridPos"] for panel in panels)
        for column in range(at["x"], at["x"] + at["w"])
        for line in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(column for column, _ in places) < render_dashboards.COLUMNS


@needs_helm
def test_chart_gives_grafana_the_same_dashboards_when_it_is_asked_to() -> None:
    def of_chart(*arguments: str) -> dict[str, Any]:
        rendered = helm_template(*arguments)
        maps = (each for (kind, name), each in rendered.items() if kind == "ConfigMap" and name.startswith("muster-"))
        return {file: (each["metadata"]["labels"], text) for each in maps for file, text in each["data"].items()}

    assert of_chart() == {}
    found = of_chart("--set", "dashboards.enabled=true")
    assert sorted(found) == sorted(NAMES)
    for name, (labels, text) in found.items():
        assert labels["grafana_dashboard"] == "1"
        assert json.loads(text) == render_dashboards.dashboards()[name]
