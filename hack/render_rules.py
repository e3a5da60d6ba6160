"""Renders docs/replication-rules.md: the rules of replication, their code, and what fails without them.

python hack/render_rules.py            print the page
python hack/render_rules.py --write    write docs/replication-rules.md
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "replication-rules.md"
SOURCE = ROOT / "tests" / "simulation" / "rules.toml"

HEAD = """# Rules of replication

Rendered from `tests/simulation/rules.toml` by `hack/render_rules.py`. [Replication](replication.md) explains them.
Code is below `coordinator/muster_coordinator/` and `operator/muster_operator/`. Without the rule these fail: unit tests
(below `tests/unit/`) and [planted faults](planted-faults.md) (in quotes).

| rule | code | test |
|---|---|---|
"""


def rules() -> list[dict[str, Any]]:
    """The rules, each with `rule` and `code`, and `faults` or `tests` or both."""
    found: list[dict[str, Any]] = tomllib.loads(SOURCE.read_text(encoding="utf-8"))["rule"]
    return found


def page() -> str:
    text = HEAD
    for each in rules():
        code = ", ".join(f"`{place}`" for place in each["code"])
        tests = [f'"{name}"' for name in each.get("faults", [])] + [f"`{name}`" for name in each.get("tests", [])]
        text += f"| {each['rule']} | {code} | {', '.join(tests)} |\n"
    return text


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(page(), PAGE, __doc__)
