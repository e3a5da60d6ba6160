"""Renders the table of the operator's rights in docs/security.md, with the reasons that stand above each rule.

python hack/render_rights.py            print the page
python hack/render_rights.py --write    write docs/security.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from rendered import print_or_write, with_part

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "security.md"
SOURCE = ROOT / "config" / "rbac.yaml"
COLUMNS = "| objects | verbs | only of the name | for |\n|---|---|---|---|\n"


def rules(source: str) -> Iterator[tuple[dict[str, list[str]], str]]:
    """The rules of all roles with the comments above them, in their order."""
    roles = [each for each in yaml.safe_load_all(source) if each["kind"] in ("Role", "ClusterRole")]
    reasons = re.findall(r"((?:^# .*\n)+)^- apiGroups:", source, re.MULTILINE)
    found = [rule for role in roles for rule in role["rules"]]
    for rule, reason in zip(found, reasons, strict=True):  # a rule without a reason is a mistake
        yield rule, " ".join(line.removeprefix("# ") for line in reason.splitlines())


def _objects(rule: dict[str, list[str]]) -> Iterator[str]:
    """The objects of a rule as kubectl names them."""
    (group,) = rule["apiGroups"]
    for resource in rule["resources"]:
        plural, _, sub = resource.partition("/")
        yield ".".join(part for part in (plural, group) if part) + (f"/{sub}" if sub else "")


def table() -> str:
    text = COLUMNS
    for rule, reason in rules(SOURCE.read_text(encoding="utf-8")):
        cells = (_objects(rule), rule["verbs"], rule.get("resourceNames", []))
        text += f"| {' | '.join(' '.join(f'`{each}`' for each in cell) for cell in cells)} | {reason} |\n"
    return text


def page() -> str:
    return with_part(PAGE, Path(__file__).name, table())


if __name__ == "__main__":
    print_or_write(page(), PAGE, __doc__)
