"""Names what has to be read twice: docstrings that are fragments (Of ..., That ..., What ..., How ..., Whether ...: see
BEGINNINGS), phrases in sources and pages that name nobody (whoever, from then on, for so long, in
the place of), and very long sentences.

python hack/plain_english.py    list them, and fail if there is one
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("coordinator", "operator", "gateway", "cli", "pipeline", "bench", "hack", "tests/support")
_QUESTIONS = {"Who", "Whom", "Whose", "What", "Where", "When", "How", "Whether", "Why", "Which", "That"}
_OF_WHAT = {"Of", "As", "So", "By", "From", "For", "To", "On", "Between", "Until", "None"}
BEGINNINGS = frozenset(_QUESTIONS | _OF_WHAT)
PHRASES = ("whoever", "from then on", "for so long", "in the place of")
_GAP = r"[\s#]+"  # between two words: also the end of a line, and what begins the next line of a comment
_PHRASES = re.compile("|".join(rf"\b{each.replace(' ', _GAP)}\b" for each in PHRASES), re.IGNORECASE)
MOST_WORDS = 40  # of a sentence, or of a part of one up to a colon or semicolon
_ENDS = re.compile(r"(?<=[.;:?!])[)\"'`*]*\s+|\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
_NO_PROSE = re.compile(  # blocks of commands, headings, tables, columns, targets of links
    r"^```(?:.|\n)*?^```|^#.*$|^.*(?:^| )\|(?: |$).*$|^.*\S {2,}\S.*$|\]\([^)]*\)", re.MULTILINE
)
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
    """(line, first line of the text) of the docstrings with one of BEGINNINGS."""
    found = [(line, text.strip().splitlines()[0]) for line, text in docstrings(source) if text.strip()]
    return sorted((line, text) for line, text in found if text.split()[0] in BEGINNINGS)


def phrases(text: str) -> list[tuple[int, str]]:
    """(line, the phrase) of each of PHRASES in a source or a page; also one that is broken over two lines."""
    return [(text.count("\n", 0, found.start()) + 1, found.group()) for found in _PHRASES.finditer(text)]


def long_sentences(prose: str) -> list[tuple[int, str]]:
    """(line, the first words) of the sentences with more than MOST_WORDS words, in a docstring or a page."""
    plain = _NO_PROSE.sub(lambda found: "\n" * found.group().count("\n"), prose)
    found, start = [], 0
    for end in [*_ENDS.finditer(plain), None]:
        words = [each for each in plain[start : end.start() if end else None].split() if any(map(str.isalnum, each))]
        if len(words) > MOST_WORDS:
            found.append((plain.count("\n", 0, start) + 1, f"{len(words)} words: {' '.join(words[:8])} ..."))
        start = end.end() if end else start
    return found


if __name__ == "__main__":
    own = Path(__file__)  # it names the phrases
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py")) if file != own]
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    said = []
    for file in files + pages:
        text = file.read_text(encoding="utf-8")
        found = phrases(text)
        if file in files:
            found += fragments(text)
            found += [(line, what) for line, prose in docstrings(text) for _, what in long_sentences(prose)]
        else:
            found += long_sentences(text)
        said += [f"{file.relative_to(ROOT)}:{line}: {what}" for line, what in sorted(found)]
    if said:
        sys.exit("\n".join([*said, "say what it does, or name the thing: see CONTRIBUTING.md, Words"]))
