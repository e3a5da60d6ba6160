"""Health checks and actions of examples/gitops, run in Lua and CEL on what the operator's planner writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml
from tests.support.gitops import GITOPS, HEALTH, OF_FLUX, Health, Json, flux_expressions, of_argo, of_flux, run_lua
from tests.support.gitops_expected import state_and_health
from tests.unit.kube.gitops_states import states

from muster_operator.api.conditions import ConditionType
from muster_operator.api.crds import KINDS
from muster_operator.api.models import CoordinatorCluster

ACTIONS = yaml.safe_load((GITOPS / "argocd" / "actions.yaml").read_text(encoding="utf-8"))
SCRIPTS = {each["name"]: each["action.lua"] for each in ACTIONS["definitions"]}
STATES = states()


@pytest.mark.parametrize("name", STATES)
def test_argo_cd_and_flux_say_of_each_state_what_is_so(name: str) -> None:
    shown, health = STATES[name]
    said = of_argo(shown)
    assert (said["status"], of_flux(shown)) == (health, OF_FLUX[health]), said
    assert said["message"] or health == "Healthy"


@pytest.mark.parametrize("name", STATES)
def test_table_beside_which_running_clusters_are_held_is_right(name: str) -> None:
    shown, health = STATES[name]
    assert state_and_health(shown)[1] == health


def test_states_are_those_that_count() -> None:
    """Each health of a cluster more than once, and each condition that the checks read."""
    healths: dict[str, set[Health]] = {}
    for shown, health in STATES.values():
        healths.setdefault(shown["kind"], set()).add(health)
    assert healths.keys() == {kind.kind for kind in KINDS}
    assert healths["CoordinatorCluster"] == set(OF_FLUX)
    conditions = {each["type"] for shown, _ in STATES.values() for each in shown["status"]["conditions"]}
    read = {each for each in ConditionType if f'"{each}"' in HEALTH or f"found.{each}" in HEALTH}
    assert read <= conditions
    assert len(STATES) > 30


def test_argo_cd_waits_for_an_object_without_any_status() -> None:
    shown, _ = STATES["cluster: no operator has seen it"]
    bare = {name: each for name, each in shown.items() if name != "status"}
    assert of_argo(bare)["status"] == "Progressing"


def test_every_kind_has_a_health_check_in_both_tools() -> None:
    kinds = {kind.kind for kind in KINDS}
    (made,) = yaml.safe_load((GITOPS / "argocd" / "kustomization.yaml").read_text(encoding="utf-8"))[
        "configMapGenerator"
    ]
    files = dict(each.split("=") for each in made["files"])
    prefix = "resource.customizations.health.muster.dev_"
    assert {name.removeprefix(prefix) for name in files if name.startswith(prefix)} == kinds
    assert {each for name, each in files.items() if name.startswith(prefix)} == {"health.lua"}
    assert {each["kind"] for each in flux_expressions()} == kinds


def declared(**spec: Any) -> Json:
    return {"kind": "CoordinatorCluster", "metadata": {"name": "c"}, "spec": {"pods": 3, **spec}}


WINDOW = {"start": "22:00", "end": "05:00"}


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("suspend", {}, {"suspend": True}),
        ("resume", {"suspend": True}, {"suspend": False}),
        ("hibernate", {"hibernate": False}, {"hibernate": True}),
        ("wake", {"hibernate": True}, {"hibernate": False}),
        ("pause-rollout", {}, {"rollout": {"paused": True}}),
        ("pause-rollout", {"rollout": {"window": WINDOW}}, {"rollout": {"window": WINDOW, "paused": True}}),
        ("resume-rollout", {"rollout": {"paused": True}}, {"rollout": {"paused": False}}),
        ("rotate-ca", {}, {"security": {"caRound": 1}}),
        ("rotate-ca", {"security": {"caRound": 4}}, {"security": {"caRound": 5}}),
    ],
)
def test_action_is_offered_and_changes_that_field_alone(action: str, before: Json, after: Json) -> None:
    shown = declared(**before)
    assert not run_lua(ACTIONS["discovery.lua"], shown)[action]["disabled"]
    changed = run_lua(SCRIPTS[action], shown)
    assert changed == declared(**{**before, **after})
    msgspec.convert(changed, CoordinatorCluster)
    assert run_lua(ACTIONS["discovery.lua"], changed)[action]["disabled"] == (action != "rotate-ca")


def test_restart_makes_another_template_of_pods() -> None:
    changed = run_lua(SCRIPTS["restart"], declared())
    ((name, value),) = changed["spec"]["podTemplate"]["annotations"].items()
    assert name == "muster.dev/restarted-at"
    assert datetime.fromisoformat(value).tzinfo is UTC
    msgspec.convert(changed, CoordinatorCluster)
    assert run_lua(ACTIONS["discovery.lua"], declared(suspend=True))["restart"]["disabled"]
    assert not run_lua(ACTIONS["discovery.lua"], declared())["restart"]["disabled"]


def test_every_action_is_discovered_and_defined() -> None:
    assert run_lua(ACTIONS["discovery.lua"], declared()).keys() == SCRIPTS.keys()
