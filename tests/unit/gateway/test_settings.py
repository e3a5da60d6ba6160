"""Settings, and the page that is rendered from them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from muster_gateway.routes import Routes
from muster_gateway.settings import SettingsError, parse_assignments, parse_settings

ROOT = Path(__file__).parents[3]
NEEDED = ["upstream.bootstrap.servers=kafka-0:9092, [::1]:9093"]


def test_settings_have_their_defaults_and_take_values() -> None:
    settings = parse_settings(parse_assignments([*NEEDED, "park.ms=50"]))
    assert (settings.park_ms, settings.max_in_flight, settings.groups) == (50, 64, "")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ([], "upstream.bootstrap.servers is needed"),
        (["upstream.bootstrap.servers=kafka"], "not of the form HOST:PORT"),
        (["upstream.bootstrap.servers=kafka:0"], "not of the form HOST:PORT"),
        ([*NEEDED, "muster.groups=a"], "muster.bootstrap.servers is needed"),
        ([*NEEDED, "park.msec=1"], "did you mean park.ms?"),
        ([*NEEDED, "park.ms=x"], "is not a number"),
        ([*NEEDED, "park.ms=600001"], "is not between 0 and 600000"),
        ([*NEEDED, "park.ms"], "not of the form NAME=VALUE"),
    ],
)
def test_what_cannot_be_taken_is_named(assignments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("?", r"\?")):
        parse_settings(parse_assignments(assignments))


@pytest.mark.parametrize(
    ("prefixes", "group", "here"),
    [([], "a", False), (["a", "b-"], "b", False), (["a", "b-"], "b-1", True), (["*"], "any", True), (["*"], "", True)],
)
def test_groups_are_served_by_prefix(prefixes: list[str], group: str, here: bool) -> None:
    assert Routes(prefixes).served_here(group) is here
    assert bool(Routes(prefixes)) is bool(prefixes)


def test_the_page_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("render_gateway", ROOT / "hack" / "render_gateway.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "gateway.md").read_text() == module.render(), "run: python hack/render_gateway.py --write"
