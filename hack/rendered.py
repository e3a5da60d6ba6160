"""Shows a page that is rendered from the code, or in part: prints it, or with --write writes it over the page."""

from __future__ import annotations

import sys
from pathlib import Path


def with_part(page: Path, script: str, part: str) -> str:
    """The text of the page, with `part` in place of what hack/`script` has written between its two comments. Raises
    ValueError if the page does not have them."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- written by `hack/{script}` -->", f"<!-- end of what `hack/{script}` wrote -->"
    return f"{text[: text.index(begin)]}{begin}\n{part}{text[text.index(end) :]}"


def print_or_write(text: str, page: Path, usage: str | None) -> None:
    """Print the text, or write it to the page, by the arguments of the command. Raises SystemExit with `usage` for
    other arguments."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text, encoding="utf-8")
    elif sys.argv[1:]:
        sys.exit(usage)
    else:
        sys.stdout.write(text)
