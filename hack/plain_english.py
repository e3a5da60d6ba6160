"""Names docstrings that are neither sentences nor names of things: they begin with Of, That, Who, Whom, Whose or As.

python hack/plain_english.py    list them, and fail if there is one
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("coordinator", "operator", "gateway", "cli", "pipeline")
BEGINNINGS = frozenset({"Of", "That", "Who", "Whom", "Whose", "As"})


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each docstring, and of each text that stands below a field or a constant."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


def fragments(source: str) -> list[tuple[int, str]]:
    """(line, first line of the text) of the docstrings with such a beginning."""
    found = [(line, text.strip().splitlines()[0]) for line, text in docstrings(source) if text.strip()]
    return sorted((line, text) for line, text in found if text.split()[0] in BEGINNINGS)


if __name__ == "__main__":
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    said = [f"{file.relative_to(ROOT)}:{line}: {text}" for file in files for line, text in fragments(file.read_text())]
    if said:
        sys.exit("\n".join([*said, "say what it does, or name the thing: see CONTRIBUTING.md, Words"]))
