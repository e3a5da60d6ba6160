"""docs/operator-tests.md is rendered, and each row of the threat model in docs/security.md names a test that exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import render_operator  # hack/ is no package

REPOSITORY = Path(__file__).parents[3]


def rows(page: str) -> list[tuple[str, str]]:
    """(the row, the text of its last column) of the tables whose last column is called test."""
    found: list[tuple[str, str]] = []
    in_matrix = False
    for line in (REPOSITORY / "docs" / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            in_matrix = False
        elif line.endswith("| test |"):
            in_matrix = True
        elif in_matrix and not line.startswith("|---"):
            found.append((line, line.strip("| ").rsplit("|", 1)[1].strip()))
    return found


def test_every_row_of_the_threat_model_names_tests_that_exist() -> None:
    found = rows("security.md")
    assert len(found) > 15
    for row, named in found:
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", named)
        assert tests, f"no test in the last column of: {row}"
        for file, test in tests:
            path = next(
                (p for p in (REPOSITORY / "tests/unit" / file, REPOSITORY / "tests" / file) if p.exists()), None
            )
            assert path is not None, f"{file} does not exist: {row}"
            assert re.search(rf"def {test}\(", path.read_text(encoding="utf-8")), f"{test} is not in {file}"


def test_page_of_the_operators_tests_is_rendered_from_their_names() -> None:
    assert render_operator.PAGE.read_text() == render_operator.page(), "run: python hack/render_operator.py --write"


def test_names_of_tests_are_sentences() -> None:
    source = "async def test_pod_goes() -> None: ...\ndef helper() -> None: ...\nclass A:\n    def test_it(self): ...\n"
    assert [*render_operator.sentences(source)] == ["Pod goes.", "It."]
