"""docs/resources.md is rendered from the definitions of the custom resources."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import render_resources  # hack/ is no package


def test_page_is_rendered_from_the_definitions() -> None:
    page = render_resources.page()
    assert render_resources.PAGE.read_text() == page, "run: python hack/render_resources.py --write"
    assert page.count("\n## ") == 6


def test_fields_of_objects_and_of_elements_of_arrays_are_listed_and_what_all_statuses_have_is_not() -> None:
    leaf = {"type": "string"}
    schema = {
        "properties": {
            "conditions": leaf,
            "a": {"properties": {"b": leaf}},
            "c": {"items": {"properties": {"d": leaf}}},
        }
    }
    assert [path for path, _ in render_resources.fields(schema, "status")] == [
        *("status.a", "status.a.b", "status.c", "status.c[].d"),
    ]
