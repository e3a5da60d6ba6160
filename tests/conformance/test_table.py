"""kafka_tests.toml is true: it answers for every test of Kafka's suites, once, and what it names exists."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

import render_conformance  # hack/ is no package
from tests.conformance import scripts  # noqa: F401  # importing the scripts registers them
from tests.conformance.registry import SCRIPTS

ROOT = Path(__file__).parents[2]
KAFKA: dict[str, list[dict[str, Any]]] = tomllib.loads(render_conformance.SOURCE.read_text(encoding="utf-8"))
SUITES = KAFKA["suite"]
# What Kafka's files hold: a name that is lost here, or there, changes one of these numbers.
COUNTS = {
    "GroupCoordinatorTest.scala": 163,
    "GroupMetadataManagerTest.java": 409,
    "ConsumerGroupTest.java": 46,
    "TargetAssignmentBuilderTest.java": 9,
    "CurrentAssignmentBuilderTest.java": 21,
    "RangeAssignorTest.java": 14,
    "UniformHomogeneousAssignmentBuilderTest.java": 12,
    "UniformHeterogeneousAssignmentBuilderTest.java": 13,
    "OffsetMetadataManagerTest.java": 65,
    "GroupMetadataManagerTest.scala": 68,
    "TransactionCoordinatorTest.scala": 84,
    "TransactionStateManagerTest.scala": 38,
    "TransactionMetadataTest.java": 29,
    "TransactionMarkerChannelManagerTest.scala": 13,
    "TransactionLogTest.java": 10,
}


def rows(suite: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, where it is tested here, or why not) of a suite; the tests of a part share one row."""
    return [(suite["part"], suite["here"])] if "part" in suite else list(suite["tests"].items())


ROWS = [row for suite in [*SUITES, *KAFKA["other"]] for row in rows(suite)]


@pytest.mark.parametrize("file", COUNTS)
def test_names_of_a_suite_are_complete(file: str) -> None:
    names = [name for suite in SUITES if suite["file"] == file for name in suite["tests"]]
    assert len(set(names)) == len(names) == COUNTS[file]


def test_page_is_rendered_from_the_names() -> None:
    assert render_conformance.PAGE.read_text(encoding="utf-8") == render_conformance.page(), (
        "run: python hack/render_conformance.py --write"
    )


def test_every_row_names_tests_or_gives_a_reason() -> None:
    for name, cell in ROWS:
        assert re.fullmatch(r"does not apply: .{20,}", cell) or re.fullmatch(r"`[^`]+`(, `[^`]+`)*", cell), name


def test_groups_and_offsets_have_tests_and_hardly_any_excuses() -> None:
    of_groups = [row for suite in SUITES if not suite["file"].startswith("Transaction") for row in rows(suite)]
    excused = [name for name, cell in of_groups if cell.startswith("does not apply: ") and name.startswith("test")]
    behind_kip_848 = [name for name in excused if name.startswith(("testConsumerGroup", "testFetchOffsetsWith"))]
    assert len(excused) - len(behind_kip_848) <= 5, excused


def test_transactions_have_tests_and_hardly_any_excuses() -> None:
    of_transactions = [row for suite in SUITES if suite["file"].startswith("Transaction") for row in rows(suite)]
    excused = [name for name, cell in of_transactions if cell.startswith("does not apply: ")]
    assert len(excused) <= 14, excused


def test_every_test_that_the_page_names_exists() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for name, cell in ROWS:
        for file, function in re.findall(r"`(test_\w+)::(\w+)`", cell):
            assert any(
                path.stem == file and re.search(rf"^(async )?def test_{function}\(", source, re.MULTILINE)
                for path, source in sources.items()
            ), f"{name}: {file}::{function}"


def test_every_script_that_the_page_names_exists() -> None:
    for name, cell in ROWS:
        for wanted in re.findall(r"`script:(\w+)`", cell):
            assert any(s.name == wanted or s.name.startswith(f"{wanted}_") for s in SCRIPTS), f"{name}: {wanted}"


def test_every_reference_is_of_a_known_form() -> None:
    for name, cell in ROWS:
        if not cell.startswith("does not apply: "):
            for reference in re.findall(r"`([^`]+)`", cell):
                assert re.fullmatch(r"script:\w+|test_\w+::\w+", reference), f"{name}: {reference}"
