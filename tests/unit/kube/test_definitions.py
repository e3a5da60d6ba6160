"""Cases that the API server refuses in the tests on Kubernetes are refused by `tests.support.definitions`, and others
are not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.kubernetes.test_crds_schema import BY_STATUS, CHANGED, REFUSED, SECURED, resource
from tests.support.definitions import Json, defaulted, problems, schemas


def shown(kind: str, name: str, spec: dict[str, Any]) -> Json:
    found = yaml.safe_load(resource(kind, "ns", name, spec))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("kind", "name", "spec", "expected"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED])
def test_wrong_object_is_refused_with_the_words_of_the_api_server(
    kind: str, name: str, spec: dict[str, Any], expected: str
) -> None:
    assert any(expected in each for each in problems(shown(kind, name, spec)))


@pytest.mark.parametrize(
    ("kind", "before", "after", "expected"), CHANGED, ids=[f"{row[0]}-{row[3]}-{row[2]}" for row in CHANGED]
)
def test_wrong_change_is_refused(kind: str, before: dict[str, Any], after: dict[str, Any], expected: str) -> None:
    old = shown(kind, "x", before)
    assert problems(old) == []
    assert any(expected in each for each in problems(shown(kind, "x", after), old))


@pytest.mark.parametrize(("kind", "spec", "status", "change", "expected"), BY_STATUS)
def test_change_that_the_status_rules_out_is_refused(
    kind: str, spec: dict[str, Any], status: dict[str, Any], change: dict[str, Any], expected: str
) -> None:
    old = {**shown(kind, "x-0", spec), **status}
    assert any(expected in each for each in problems({**old, **change}, old))


def test_object_that_is_right_has_no_problems_and_has_defaults() -> None:
    assert problems(shown("CoordinatorCluster", "a", SECURED)) == []
    assert defaulted(schemas()["CoordinatorCluster"], shown("CoordinatorCluster", "a", {}))["spec"]["pods"] == 3


def test_field_that_there_is_not_is_refused() -> None:
    (found,) = problems(shown("CoordinatorCluster", "a", {"storage": {"sise": "1Gi"}}))
    assert found == "spec.storage.sise: unknown field"
