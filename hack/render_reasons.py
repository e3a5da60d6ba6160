"""Renders docs/reasons.md: every condition of the operator's, and every reason that one, a status or an Event can have.

python hack/render_reasons.py            print the page
python hack/render_reasons.py --write    write docs/reasons.md
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reasons.md"
ENUMS = ("ConditionType", "Reason")
SOURCE = ROOT / "operator" / "muster_operator" / "api" / "conditions.py"

HEAD = """# Conditions and reasons

Rendered from the code by `hack/render_reasons.py`; a test holds this page true, and another one that each reason is
reached by a test. These words are stable: conditions, `status.reason`, Events, log lines and metrics use them. The
message next to a reason says what it is about and, where a person has to act, has the command.

| condition | true means |
|---|---|
"""

REASONS = """
## Reasons

| reason | what it says |
|---|---|
"""


def meanings(enum: str) -> dict[str, str]:
    """The words of an enumeration with their docstrings, in the order of the code."""
    body = ast.parse(SOURCE.read_text(encoding="utf-8")).body
    found: dict[str, str] = {}
    for each in next(each for each in body if isinstance(each, ast.ClassDef) and each.name == enum).body:
        match each:
            case ast.Assign(value=ast.Constant(value=str(word))):
                found[word] = ""
            case ast.Expr(value=ast.Constant(value=str(text))) if found:
                found[next(reversed(found))] = " ".join(text.split())
    return found


def reasons() -> dict[str, str]:
    """The reasons with their docstrings, in the order of the code."""
    return meanings("Reason")


def page() -> str:
    rows = ["".join(f"| `{word}` | {text} |\n" for word, text in meanings(each).items()) for each in ENUMS]
    return HEAD + REASONS.join(rows)


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(page(), PAGE, __doc__)
