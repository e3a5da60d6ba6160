"""Health checks and actions of examples/gitops, run in Lua and CEL on what the operator's planner writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cel_expr_python import cel
from lupa.lua51 import LuaRuntime
from tests.unit.kube.gitops_states import Health, Json, states

from muster_operator.api.conditions import ConditionType
from muster_operator.api.crds import KINDS
from muster_operator.api.models import CoordinatorCluster

GITOPS = Path(__file__).parents[3] / "examples" / "gitops"
HEALTH = (GITOPS / "argocd" / "health.lua").read_text(encoding="utf-8")
ACTIONS = yaml.safe_load((GITOPS / "argocd" / "actions.yaml").read_text(encoding="utf-8"))
SCRIPTS = {each["name"]: each["action.lua"] for each in ACTIONS["definitions"]}
OF_FLUX = {"Healthy": "Current", "Suspended": "Current", "Degraded": "Failed", "Progressing": "InProgress"}
STATES = states()
SANDBOX = """
package.loaded.os = {date = os.date, time = os.time}
os = package.loaded.os
for _, name in ipairs({"string", "io", "math", "debug", "coroutine"}) do
  _G[name], package.loaded[name] = nil, nil
end
"""


def run_lua(script: str, shown: Json) -> Any:
    """What the script returns, with `obj` as Argo CD sets it, and of the libraries what Argo CD lets a script have."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.execute(SANDBOX)
    lua.globals().obj = lua.table_from(shown, recursive=True)
    return _plain(lua.execute(script))


def _plain(value: Any) -> Any:
    if not hasattr(value, "items"):
        return value
    found = {name: _plain(each) for name, each in value.items()}
    return [*found.values()] if found and all(isinstance(name, int) for name in found) else found


def of_argo(shown: Json) -> Any:
    return run_lua(HEALTH, shown)


def of_flux(shown: Json) -> str:
    """As Flux's StatusEvaluator: the generation, inProgress, failed, current; else in progress."""
    seen = shown.get("status", {}).get("observedGeneration")
    if seen is not None and seen != shown["metadata"]["generation"]:
        return "InProgress"
    expressions = {each["kind"]: each for each in flux_expressions()}[shown["kind"]]
    for name, verdict in (("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")):
        if evaluate(expressions[name], shown):
            return verdict
    return "InProgress"


def flux_expressions() -> list[Json]:
    documents = yaml.safe_load_all((GITOPS / "flux" / "muster.yaml").read_text(encoding="utf-8"))
    (found,) = [each["spec"]["healthCheckExprs"] for each in documents if "healthCheckExprs" in each["spec"]]
    assert isinstance(found, list)
    return found


def evaluate(expression: str, shown: Json) -> bool:
    env = cel.NewEnv(variables=dict.fromkeys(("apiVersion", "kind", "metadata", "spec", "status"), cel.Type.DYN))
    value = env.compile(expression).eval(data=shown).value()
    assert isinstance(value, bool), value
    return value


@pytest.mark.parametrize("name", STATES)
def test_argo_cd_and_flux_say_of_each_state_what_is_so(name: str) -> None:
    shown, health = STATES[name]
    said = of_argo(shown)
    assert (said["status"], of_flux(shown)) == (health, OF_FLUX[health]), said
    assert said["message"] or health == "Healthy"


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
