"""hack/plain_english.py sees docstrings that are fragments, phrases that name nobody, and long sentences."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

from plain_english import MOST_WORDS, fragments, long_sentences, phrases

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


def test_questions_that_are_no_sentences_are_found_too() -> None:
    words = ("What", "Where", "When", "How", "Whether", "Why", "Which")
    assert [line for word in words for line, _ in fragments(f'"""{word} a pod has."""\n')] == [1] * len(words)
    assert fragments('"""True if a pod has whatever it needs."""\n') == []


def test_phrases_are_found_in_any_line_and_only_as_whole_words() -> None:
    page = "Whoever asks\nwaits for so long; wherever they are, long from then onwards,\n# and from\n    # then on."
    assert phrases(page) == [(1, "Whoever"), (2, "for so long"), (3, "from\n    # then on")]


def test_long_sentences_are_found_in_prose_alone() -> None:
    most = " ".join(["word"] * MOST_WORDS)
    page = (
        f"# A title\n\n{most}. {most}; {most}\n\n- {most}\n- {most}\n\n| {most} | {most} |\n\n```\n{most} {most}\n```\n"
    )
    assert long_sentences(page) == []
    assert long_sentences(f"{page}\nOne {most}") == [(14, f"{MOST_WORDS + 1} words: One {'word ' * 7}...")]
