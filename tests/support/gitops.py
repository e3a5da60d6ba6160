"""The health checks of examples/gitops as Argo CD and Flux evaluate them: Lua and CEL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from cel_expr_python import cel
from lupa.lua51 import LuaRuntime

Json = dict[str, Any]
Health = Literal["Healthy", "Progressing", "Degraded", "Suspended"]

GITOPS = Path(__file__).parents[2] / "examples" / "gitops"
HEALTH = (GITOPS / "argocd" / "health.lua").read_text(encoding="utf-8")
OF_FLUX: dict[Health, str] = {
    "Healthy": "Current",
    "Suspended": "Current",
    "Degraded": "Failed",
    "Progressing": "InProgress",
}
"""Flux's word for each of Argo CD's."""
SANDBOX = """
package.loaded.os = {date = os.date, time = os.time}
os = package.loaded.os
for _, name in ipairs({"string", "io", "math", "debug", "coroutine"}) do
  _G[name], package.loaded[name] = nil, nil
end
"""


def run_lua(script: str, shown: Json) -> Any:
    """Run it with `obj` and the libraries that Argo CD gives a script. Returns its result."""
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
    """Status and message."""
    return run_lua(HEALTH, shown)


def of_flux(shown: Json) -> str:
    """The verdict of Flux's StatusEvaluator: by the generation, inProgress, failed, current; else in progress."""
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
