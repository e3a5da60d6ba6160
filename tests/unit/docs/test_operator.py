"""docs/operator.md and docs/security.md: every row of their matrices names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs"


def rows(page: str) -> list[tuple[str, str]]:
    """(the row, the text of its last column) of the tables whose last column is called test."""
    found: list[tuple[str, str]] = []
    in_matrix = False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            in_matrix = False
        elif line.endswith("| test |"):
            in_matrix = True
        elif in_matrix and not line.startswith("|---"):
            found.append((line, line.strip("| ").rsplit("|", 1)[1].strip()))
    return found


@pytest.mark.parametrize(("page", "least"), [("operator.md", 30), ("security.md", 15)])
def test_every_row_names_tests_that_exist(page: str, least: int) -> None:
    found = rows(page)
    assert len(found) > least
    for row, named in found:
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", named)
        assert tests, f"no test in the last column of: {row}"
        for file, test in tests:
            path = next(
                (p for p in (REPOSITORY / "tests/unit" / file, REPOSITORY / "tests" / file) if p.exists()), None
            )
            assert path is not None, f"{file} does not exist: {row}"
            assert re.search(rf"def {test}\(", path.read_text(encoding="utf-8")), f"{test} is not in {file}"
