"""Least rights, by all that the tests before have had operators do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kube import REPOSITORY, custom_resources
from tests.support.rights import granted

__all__ = ["custom_resources"]

AUDIT = os.environ.get("MUSTER_TEST_AUDIT", "")
WHOLE = bool(os.environ.get("MUSTER_TEST_WHOLE"))
"""All tests of tests/kubernetes ran before, as `make test-kubernetes` has them."""
NAME = ":muster-operator"
"""The end of the account of each operator: tests install some of their own, which are made to do what is rare."""
NAMED_BY_A_USER = {"get secrets nowhere"}
"""Secrets that a MusterUser of tests/kubernetes/test_users.py names: a person gives the right to read each (ADR 38),
and here nobody has."""
INSTALLED = f"system:serviceaccount:muster-system{NAME}"

pytestmark = pytest.mark.kubernetes

if not AUDIT:
    pytest.skip("needs the audit log of an API server: hack/localkube, or MUSTER_TEST_AUDIT", allow_module_level=True)


def requests() -> list[dict[str, Any]]:
    """Those of operators about objects."""
    with Path(AUDIT).open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines if NAME in line and line.endswith("\n")]
    return [each for each in found if each["user"]["username"].endswith(NAME) and each.get("objectRef")]


def rights_of(request: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """The rights of which it needs one for each verb. An apply that made its object has created it as well."""
    about = request["objectRef"]
    resource = "/".join(part for part in (about["resource"], about.get("subresource", "")) if part)
    verbs = [request["verb"]]
    if request["verb"] == "patch" and request.get("responseStatus", {}).get("code") == 201:
        verbs.append("create")
    return {(about.get("apiGroup", ""), resource, verb, name) for verb in verbs for name in ("", about.get("name", ""))}


def is_allowed(request: dict[str, Any]) -> bool:
    """By the roles, of which tests/kubernetes/test_alerts.py takes a right away for a while; a policy may have refused
    it."""
    return bool(request["annotations"].get("authorization.k8s.io/decision") == "allow")


def test_whole_run_has_used_every_right_of_the_operator_and_no_other(custom_resources: None) -> None:
    role = granted([each for each in yaml.safe_load_all((REPOSITORY / "config/rbac.yaml").read_text()) if each])
    asked = requests()
    outside = {
        f"{each['verb']} {each['objectRef']['resource']} {each['objectRef'].get('name', '')}"
        for each in asked
        if each["user"]["username"] == INSTALLED and not rights_of(each) & role
    }
    assert outside <= NAMED_BY_A_USER, "asked for, and not in the role"
    used = set[tuple[str, str, str, str]]().union(*(rights_of(each) for each in asked if is_allowed(each)))
    print("not used in this run:", sorted(role - used))
    if WHOLE:
        assert role - used == set(), "granted, and nothing has used it"
