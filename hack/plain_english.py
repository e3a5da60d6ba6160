"""Names docstrings that are neither sentences nor names of things: they begin with Of, That, Who, Whom, Whose or As.

python hack/plain_english.py    list those beyond ALLOWED, and fail if there is one
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("coordinator", "operator", "gateway", "cli", "pipeline")
BEGINNINGS = frozenset({"Of", "That", "Who", "Whom", "Whose", "As"})

ALLOWED = {
    "coordinator/muster_coordinator/groups": 9,
    "coordinator/muster_coordinator/listener": 9,
    "gateway": 7,
    "cli": 3,
}
"""How many each folder still has: these numbers only fall, and elsewhere there is none."""


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


def complaints(by_file: dict[str, list[tuple[int, str]]], allowed: dict[str, int]) -> list[str]:
    """What to mend, by the fragments of each file: all of a folder that has more of them than it may have."""
    by_folder: dict[str, list[str]] = {folder: [] for folder in ("", *allowed)}
    for file, found in by_file.items():
        folder = next((each for each in allowed if file.startswith(f"{each}/")), "")
        by_folder[folder] += [f"{file}:{line}: {text}" for line, text in found]
    said = []
    for folder, lines in by_folder.items():
        most = allowed.get(folder, 0)
        if len(lines) > most:
            said += [*lines, f"{len(lines)} fragments in {folder or 'other folders'}, allowed: {most}"]
        elif len(lines) < most:
            print(f"hack/plain_english.py: ALLOWED of {folder} can be {len(lines)}")
    return said


if __name__ == "__main__":
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    if said := complaints({str(file.relative_to(ROOT)): fragments(file.read_text("utf-8")) for file in files}, ALLOWED):
        sys.exit("\n".join([*said, "say what it does, or name the thing: see CONTRIBUTING.md, Words"]))
