"""Renders docs/planted-faults.md: every fault that simulation plants, and within how many seeds it is caught.

python hack/render_faults.py            print the page
python hack/render_faults.py --write    write docs/planted-faults.md
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "planted-faults.md"
HEAD = """# Planted faults

Rendered from the code by `hack/render_faults.py`; a test holds this page true. Each fault breaks one rule of the
protocol, or takes the work from one part of a pod or an operator (`tests/simulation/faults/`). `make simulate-faults`
looks for the first seed that catches it, as [simulation](simulation.md) draws seeds.

"""


def render(table: str) -> str:
    """The page around the table of `tests.simulation.faults`."""
    first = table.replace("| not planted |", "## Not planted\n\n| fault |", 1)
    return HEAD + first.replace("| not planted |", "### Not planted there\n\n| fault |")


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    sys.path.insert(0, str(ROOT))  # for `tests`, which is no installed package
    print_or_write(render(import_module("tests.simulation.faults").table()), PAGE, __doc__)
