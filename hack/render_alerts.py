"""Renders what follows from the table of alerts (hack/alerts.py): Prometheus rules, the chart's, and the runbook.

python hack/render_alerts.py            print the runbook
python hack/render_alerts.py --write    write all three files
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from alerts import ALERTS, CERTIFICATE_DAYS, GROUPS, Alert

ROOT = Path(__file__).parent.parent
RULES = ROOT / "config" / "monitoring" / "alerts.yaml"
CHART = ROOT / "charts" / "muster" / "files" / "alerts.yaml"
PAGE = ROOT / "docs" / "runbook.md"

RENDERED = "# Rendered from hack/alerts.py by hack/render_alerts.py.\n"
DEFAULT_CERTIFICATE_DAYS = "6"

HEAD = """# Runbook

What each alert means and what to do about it. Rendered from `hack/alerts.py`, like the rules themselves:
`kubectl apply -k config/monitoring`, or `alerts.enabled` of the chart. They need the Prometheus operator; the groups in
`config/monitoring/alerts.yaml` are those of any Prometheus.

`$NAMESPACE`, `$CLUSTER` and `$POD` are the labels of the alert (`exported_namespace` where there is one).

| alert | severity | when |
|---|---|---|
"""

TESTED = """
`make test-alerts` makes the fault of each on a real Kubernetes, before a real Kafka. A real Prometheus evaluates the
rules, and the commands of this page are run as they are written.
"""


def groups() -> list[dict[str, Any]]:
    """The groups of rules as Prometheus reads them."""
    return [{"name": name, "rules": [_rule(alert) for alert in group]} for name, group in GROUPS.items()]


def _rule(alert: Alert) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert.name, "expr": alert.expression}
    if alert.minutes:
        rule["for"] = f"{alert.minutes}m"
    annotations = {
        "summary": alert.summary,
        "description": alert.means,
        "runbook": f"docs/runbook.md#{alert.name.lower()}",
    }
    return {**rule, "labels": {"severity": alert.severity}, "annotations": annotations}


def prometheus_rule() -> str:
    """config/monitoring/alerts.yaml."""
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "muster", "labels": {"app.kubernetes.io/part-of": "muster"}},
        "spec": {"groups": groups()},
    }
    return RENDERED + _yaml(document).replace(CERTIFICATE_DAYS, DEFAULT_CERTIFICATE_DAYS)


def chart_file() -> str:
    """charts/muster/files/alerts.yaml: the groups, with the placeholder of the chart's value."""
    return RENDERED + _yaml(groups())


def page() -> str:
    """docs/runbook.md."""
    rows = "".join(f"| [{each.name}](#{each.name.lower()}) | {each.severity} | {each.summary} |\n" for each in ALERTS)
    return HEAD + _without_templates(rows) + TESTED + "".join(map(_section, ALERTS))


def _section(alert: Alert) -> str:
    commands = "\n".join(alert.look)
    lasts = f"for {alert.minutes} minutes" if alert.minutes > 1 else "for a minute" if alert.minutes else "at once"
    return (
        f"\n## {alert.name}\n\n{alert.means} It fires {lasts}.\n\n**What clients see.** {alert.clients}\n\n"
        f"**Look at**\n\n```\n{commands}\n```\n\n**Do.** {alert.do}\n\n**It is over when:** {alert.over}\n"
    )


def _without_templates(text: str) -> str:
    """`text` with what a person reads for Prometheus' templates: {{ $labels.pod }} becomes *pod*."""
    for label in ("exported_namespace", "namespace", "cluster", "pod", "peer", "reason"):
        text = text.replace("{{ $labels." + label + " }}", f"*{label.removeprefix('exported_')}*")
    return text


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


FILES = {RULES: prometheus_rule, CHART: chart_file, PAGE: page}


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        for file, render in FILES.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(render(), encoding="utf-8")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
