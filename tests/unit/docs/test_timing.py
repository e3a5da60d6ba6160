"""docs/timing.md lists every time that the code fixes. Each has a reason, and they stay few."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONSTANTS_MAX = 51


@pytest.fixture(scope="module")
def timing() -> Any:
    spec = importlib.util.spec_from_file_location("render_timing", ROOT / "hack" / "render_timing.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_what_the_code_says(timing: Any) -> None:
    page = (ROOT / "docs" / "timing.md").read_text()
    assert page == timing.render(), "run: python hack/render_timing.py --write"


def test_every_time_has_a_reason(timing: Any) -> None:
    without = [f"{time.path}: {time.name}" for time in timing.constants() + timing.protocol_times() if not time.reason]
    assert without == [], "a docstring below each constant says why it has this value"


def test_they_are_few(timing: Any) -> None:
    found = [f"{time.path}: {time.name}" for time in timing.constants()]
    assert len(found) <= CONSTANTS_MAX, found
    assert len(found) > 10, "the page would be empty"
