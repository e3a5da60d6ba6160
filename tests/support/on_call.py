"""A person on call: sees alerts of a Prometheus, and runs the commands of the runbook as they are written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.kube import REPOSITORY
from tests.support.muster_cluster import wait_until
from tests.support.prometheus import Prometheus

RUNBOOK = REPOSITORY / "docs" / "runbook.md"
NEEDS_A_PERSON = 1
"""The exit code of `muster status` when it tells of a fault (docs/cli.md)."""


def commands_of(alert: str) -> list[str]:
    """The lines under "Look at" in the section of the alert."""
    section = RUNBOOK.read_text(encoding="utf-8").split(f"\n## {alert}\n")[1].split("\n## ")[0]
    found = re.search(r"\*\*Look at\*\*\n\n```\n(.*?)\n```", section, re.DOTALL)
    assert found, f"{alert} has no commands in {RUNBOOK.name}"
    return found[1].splitlines()


class OnCall:
    """`namespaces`: alerts of other namespaces are those of other tests. `fired` collects what has fired."""

    def __init__(self, prometheus: Prometheus, namespaces: set[str]) -> None:
        self.prometheus = prometheus
        self.namespaces = namespaces
        self.fired: set[str] = set()

    def sees(self, alert: str, timeout_s: float = 120.0, **labels: str) -> dict[str, str]:
        """The labels of the alert, once it fires with these among them."""
        wait_until(lambda: bool(self._firing(alert, labels)), f"{alert} fires, {labels}", timeout_s)
        found = self._firing(alert, labels) or [labels]
        self.fired.add(alert)
        return found[0]

    def sees_it_go_out(self, alert: str, timeout_s: float = 120.0, **labels: str) -> None:
        wait_until(lambda: not self._firing(alert, labels), f"{alert} goes out, {labels}", timeout_s)

    def sees_now(self, alert: str) -> bool:
        """True if it fires at this moment."""
        return bool(self._firing(alert, {}))

    def saw(self, alert: str) -> list[dict[str, str]]:
        """The labels of the alerts that have fired, also if they went out since."""
        found = self._ours(self.prometheus.fired(alert))
        if found:
            self.fired.add(alert)
        return found

    def _firing(self, alert: str, labels: Mapping[str, str]) -> list[dict[str, str]]:
        return [each for each in self._ours(self.prometheus.firing(alert)) if each.items() >= labels.items()]

    def _ours(self, found: list[dict[str, str]]) -> list[dict[str, str]]:
        return [each for each in found if "namespace" not in each or self._namespace(each) in self.namespaces]

    def _namespace(self, labels: Mapping[str, str]) -> str:
        return labels.get("exported_namespace", labels["namespace"])

    def looks(self, alert: str, labels: Mapping[str, str]) -> str:
        """The output of the runbook's commands. Each has to end well, and to have all that it names from the alert."""
        words = {"POD": labels.get("pod"), "CLUSTER": labels.get("cluster")}
        if "namespace" in labels:
            words["NAMESPACE"] = self._namespace(labels)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # kubectl finds kubectl-muster there
        environment = os.environ | {name: word for name, word in words.items() if word} | {"PATH": path}
        said = []
        for command in commands_of(alert):
            shell = ["bash", "-euo", "pipefail", "-c", command]
            done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=120, check=False)
            well = {0, NEEDS_A_PERSON} if command.startswith("kubectl muster status") else {0}
            assert done.returncode in well, f"{alert}: `{command}` ended with {done.returncode}: {done.stderr}"
            assert done.stdout.strip(), f"{alert}: `{command}` shows nothing: {done.stderr}"
            said.append(done.stdout)
        return "\n".join(said)
