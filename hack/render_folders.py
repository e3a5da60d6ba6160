"""Renders the table of folders in CONTRIBUTING.md, with the first sentence of each package's docstring.

python hack/render_folders.py            print the page
python hack/render_folders.py --write    write CONTRIBUTING.md
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rendered import print_or_write, with_part

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
PACKAGES = (
    "coordinator/muster_coordinator",
    "operator/muster_operator",
    "gateway/muster_gateway",
    "pipeline/muster_pipeline",
    "cli/muster_cli",
)


def first_sentence(source: str) -> str:
    """The first sentence of a module's docstring; "" without one."""
    text = ast.get_docstring(ast.parse(source)) or ""
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]


def table() -> str:
    text = "| folder | what is in it |\n|---|---|\n"
    for package in PACKAGES:
        for file in [ROOT / package / "__init__.py", *sorted((ROOT / package).glob("*/__init__.py"))]:
            if sentence := first_sentence(file.read_text(encoding="utf-8")):
                text += f"| `{file.parent.relative_to(ROOT)}/` | {sentence} |\n"
    return text


def page() -> str:
    return with_part(PAGE, Path(__file__).name, table())


if __name__ == "__main__":
    print_or_write(page(), PAGE, __doc__)
