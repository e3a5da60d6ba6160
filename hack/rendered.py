"""How a page that is rendered from the code is shown: printed, or with --write written over the page."""

from __future__ import annotations

import sys
from pathlib import Path


def print_or_write(text: str, page: Path, usage: str | None) -> None:
    """By the arguments of the command; SystemExit with `usage` for any other ones."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text, encoding="utf-8")
    elif sys.argv[1:]:
        sys.exit(usage)
    else:
        sys.stdout.write(text)
