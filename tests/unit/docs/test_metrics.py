"""docs/metrics.md is rendered from the code, and that reading of the code is right."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import render_metrics  # hack/ is no package

from muster_operator.metrics import OperatorMetrics


def test_page_is_rendered_from_the_code() -> None:
    assert render_metrics.PAGE.read_text() == render_metrics.page(), "run: python hack/render_metrics.py --write"


def test_metrics_of_the_operator_are_read_from_its_code_as_they_are() -> None:
    read = {each.name: (each.type, each.text) for each in render_metrics.part(render_metrics.PARTS[2][0])}
    assert read == {each.name: (each.type, each.documentation) for each in OperatorMetrics().registry.collect()}


LOOPS = """
TEXTS = {"things": ("Things.", ["state"])}
for name, text, value in (("muster_calls", "Calls.", 1), ("muster_waits", "Waits " "now.", 2)):
    yield CounterMetricFamily(name, text, value)
for name, (text, labels) in TEXTS.items():
    gauge = GaugeMetricFamily(f"muster_{name}", text, labels=labels)
"""


def test_metrics_that_are_made_in_loops_are_read_too() -> None:
    assert [(each.name, each.type, each.labels, each.text) for each in render_metrics.described(LOOPS)] == [
        ("muster_calls", "counter", (), "Calls."),
        ("muster_waits", "counter", (), "Waits now."),
        ("muster_things", "gauge", ("state",), "Things."),
    ]
