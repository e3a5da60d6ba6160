"""hack/plain_english.py sees docstrings that are fragments, wherever they stand."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

from plain_english import fragments

SOURCE = '''"""Who may call what."""

LIMIT = 1
"""Of one partition."""


class Name:
    """As Kafka has it,
    in all versions."""

    field: int
    """That was seen."""

    def method(self) -> None:
        """Offers what whoever asks gets: neither `Of` nor As begins it."""
        text = """Of a value that is no docstring"""
'''


def test_fragments_are_found_in_modules_classes_fields_and_constants() -> None:
    assert fragments(SOURCE) == [
        (1, "Who may call what."),
        (4, "Of one partition."),
        (8, "As Kafka has it,"),
        (12, "That was seen."),
    ]
