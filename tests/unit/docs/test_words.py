"""hack/words.py counts words where they stand."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

from words import words

PAGE = """# A title

Two words - and three.

| a | table |
|---|---|

```
make it so
```
"""


def test_words_are_counted_by_where_they_stand() -> None:
    found = words(PAGE)
    assert (found.prose, found.table, found.command, found.rendered) == (6, 2, 3, False)
    assert found.written == 8


def test_page_from_code_has_no_words_that_are_kept_by_hand() -> None:
    assert words("# Settings\n\nRendered from the code by `x`.\n").written == 0
    assert words("# Metrics\n\nDashboards are rendered from these tables.\n").written == 8 - 1


def test_part_of_a_page_that_a_command_writes_is_not_counted() -> None:
    part = "<!-- written by `make bench` -->\nsome words\n| a | table |\n<!-- end of what `make bench` wrote -->\n"
    assert words(PAGE + part) == words(PAGE)
