"""docs/conformance.md is true: what it names exists, every row says something, and no name is listed twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.conformance import scripts  # noqa: F401  # importing the scripts registers them
from tests.conformance.registry import SCRIPTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
ROWS = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
KAFKAS = [(name, cell) for name, cell in ROWS if name not in ("Kafka", "---")]


def test_every_name_of_kafkas_has_a_test_here_or_a_reason() -> None:
    assert len(KAFKAS) >= 190
    for name, cell in KAFKAS:
        assert cell.startswith("does not apply: ") or re.fullmatch(r"`[^`]+`(, `[^`]+`)*", cell), name


def test_no_name_of_kafkas_is_listed_twice() -> None:
    assert [name for name, count in Counter(name for name, _ in KAFKAS).items() if count > 1] == []


def test_every_test_that_the_table_names_exists() -> None:
    for name, cell in KAFKAS:
        for file, function in re.findall(r"`(test_\w+)::(\w+)`", cell):
            files = list((ROOT / "tests").rglob(f"{file}.py"))
            assert any(
                re.search(rf"^(async )?def test_{function}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
                for path in files
            ), f"{name}: {file}::{function}"


def test_every_script_that_the_table_names_exists() -> None:
    for name, cell in KAFKAS:
        for wanted in re.findall(r"`script:(\w+)`", cell):
            assert any(s.name == wanted or s.name.startswith(f"{wanted}_") for s in SCRIPTS), f"{name}: {wanted}"


def test_every_reference_is_of_a_known_form() -> None:
    for name, cell in KAFKAS:
        if not cell.startswith("does not apply: "):
            for reference in re.findall(r"`([^`]+)`", cell):
                assert re.fullmatch(r"script:\w+|test_\w+::\w+", reference), f"{name}: {reference}"
