"""Names what has to be read twice: docstrings that are fragments (Of ..., That ..., Who ..., So ...), and phrases in
sources and pages that name nobody (whoever, from then on, for so long, in the place of).

python hack/plain_english.py    list them, and fail if there is one
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("coordinator", "operator", "gateway", "cli", "pipeline")
BEGINNINGS = frozenset({"Of", "That", "Who", "Whom", "Whose", "As", "So"})
PHRASES = ("whoever", "from then on", "for so long", "in the place of")
_GAP = r"[\s#]+"  # between two words: also the end of a line, and what begins the next line of a comment
_PHRASES = re.compile("|".join(rf"\b{each.replace(' ', _GAP)}\b" for each in PHRASES), re.IGNORECASE)
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "hack/*.md")


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


def phrases(text: str) -> list[tuple[int, str]]:
    """(line, the phrase) of each of PHRASES in a source or a page; also one that is broken over two lines."""
    return [(text.count("\n", 0, found.start()) + 1, found.group()) for found in _PHRASES.finditer(text)]


if __name__ == "__main__":
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    said = [f"{file.relative_to(ROOT)}:{line}: {text}" for file in files for line, text in fragments(file.read_text())]
    said += [
        f"{file.relative_to(ROOT)}:{line}: {text}" for file in files + pages for line, text in phrases(file.read_text())
    ]
    if said:
        sys.exit("\n".join([*said, "say what it does, or name the thing: see CONTRIBUTING.md, Words"]))
