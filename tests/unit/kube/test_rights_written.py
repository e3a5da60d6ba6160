"""The rights of the operator are those that people read in docs/security.md."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[3]
BEGIN, END = "## What the operator may do", "## Not closed yet"


def written() -> set[tuple[str, str, str]]:
    """Object as kubectl names it, verb, name of the object ("": any)."""
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    part = page[page.index(BEGIN) : page.index(END)]
    rows = [line.split("|")[1:4] for line in part.splitlines() if line.startswith("| `")]
    cells = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]
    return {
        (each, verb, name)
        for objects, verbs, names in cells
        for each in objects
        for verb in verbs
        for name in names or [""]
    }


def test_rights_of_the_operator_are_those_that_the_threat_model_has() -> None:
    found = set()
    for each in yaml.safe_load_all((REPOSITORY / "config" / "rbac.yaml").read_text(encoding="utf-8")):
        for rule in each.get("rules", ()) if each["kind"] in ("Role", "ClusterRole") else ():
            (group,) = rule["apiGroups"]
            for resource in rule["resources"]:
                plural, _, sub = resource.partition("/")
                named = ".".join(part for part in (plural, group) if part) + (f"/{sub}" if sub else "")
                found |= {(named, verb, name) for verb in rule["verbs"] for name in rule.get("resourceNames", [""])}
    assert len(found) > 50
    assert written() == found
