"""Shows a page that is rendered from the code: prints it, or with --write writes it over the page."""

from __future__ import annotations

import sys
from pathlib import Path


def print_or_write(text: str, page: Path, usage: str | None) -> None:
    """Print the text, or write it to the page, by the arguments of the command. Raises SystemExit with `usage` for
    other arguments."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text, encoding="utf-8")
    elif sys.argv[1:]:
        sys.exit(usage)
    else:
        sys.stdout.write(text)
