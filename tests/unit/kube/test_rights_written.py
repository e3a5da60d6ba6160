"""The rights of the operator are those that people read in docs/security.md, each with its reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import render_rights  # hack/ is no package

RULE = "# Why.\n- apiGroups: [apps]\n  resources: [deployments/scale]\n  verbs: [get]\n"


def test_rights_of_the_operator_are_those_that_the_threat_model_has() -> None:
    assert len([*render_rights.rules(render_rights.SOURCE.read_text())]) > 15
    assert render_rights.PAGE.read_text() == render_rights.page(), "run: python hack/render_rights.py --write"


def test_rule_is_read_with_the_reason_above_it_and_one_without_is_refused() -> None:
    role = "kind: Role\nrules:\n"
    ((rule, reason),) = render_rights.rules(role + RULE)
    assert (rule["verbs"], reason) == (["get"], "Why.")
    with pytest.raises(ValueError, match="zip"):
        [*render_rights.rules(role + RULE + RULE.removeprefix("# Why.\n"))]
