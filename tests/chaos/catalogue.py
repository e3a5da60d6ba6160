"""Every scenario by name, and how its cluster is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.kafka_cluster import KafkaCluster
from tests.chaos.kafka_scenarios import KAFKA, KafkaScenario
from tests.chaos.kube_cluster import KubeCluster, kube_cluster
from tests.chaos.kube_scenarios import KUBE_NETWORK, KUBERNETES, KubeScenario
from tests.chaos.network import namespaces
from tests.chaos.network_scenarios import NETWORK
from tests.chaos.observed import ObservedCluster
from tests.chaos.run import Run
from tests.chaos.scenarios import NONE, PROCESSES, Scenario
from tests.chaos.step_scenarios import kube_operator_steps, operator_steps

AnyScenario = Scenario | KubeScenario | KafkaScenario
WHAT = "the operator dies before and after each kind of action"
STEPS = Scenario("operator-steps", WHAT, NONE, operator_steps, dying=True)
KUBE_STEPS = KubeScenario("kube-operator-steps", WHAT, NONE, kube_operator_steps)
GROUPS: dict[str, tuple[AnyScenario, ...]] = {
    "processes": (*PROCESSES, STEPS),
    "network": NETWORK,
    "embedded": (*PROCESSES, STEPS, *NETWORK),
    "kubernetes": (*KUBERNETES, KUBE_STEPS, *KUBE_NETWORK),
    "kubernetes-network": KUBE_NETWORK,
    "kafka": KAFKA,
}
SCENARIOS = {scenario.name: scenario for group in GROUPS.values() for scenario in group}


@dataclass(frozen=True)
class Shape:
    pods: int
    partitions: int
    factor: int


class Clusters:
    """One on Kubernetes for all scenarios there, and a new one for each of the others. `session`: the whole run."""

    def __init__(self, shape: Shape, session: ExitStack) -> None:
        self._shape = shape
        self._session = session
        self._kubernetes: KubeCluster | None = None

    def prepare(
        self, scenario: AnyScenario, run: Run, root: Path, stack: ExitStack
    ) -> tuple[ObservedCluster, Callable[[], None]]:
        """The cluster, which ends with the stack, and what makes the faults on it. Raises Skipped, HarnessError."""
        if isinstance(scenario, KubeScenario):
            on_kubernetes, do_there = self._on_kubernetes(root), scenario.body
            stack.callback(on_kubernetes.save_logs, root)
            return on_kubernetes, lambda: do_there(run, on_kubernetes)
        if isinstance(scenario, KafkaScenario):
            kafka, do_to_kafka = stack.enter_context(self._kafka(root)), scenario.body
            return kafka, lambda: do_to_kafka(run, kafka)
        local, do = self._local(scenario, root, stack), scenario.body
        return local, lambda: do(run, local)

    def _on_kubernetes(self, root: Path) -> KubeCluster:
        if self._kubernetes is None:
            self._kubernetes = self._session.enter_context(kube_cluster(root, **vars(self._shape)))
        return self._kubernetes

    def _kafka(self, root: Path) -> KafkaCluster:
        return KafkaCluster(root, partitions=self._shape.partitions)

    def _local(self, scenario: Scenario, root: Path, stack: ExitStack) -> Cluster:
        stack.enter_context(scenario.prepare(root))
        places = stack.enter_context(namespaces(self._shape.pods)) if scenario.in_namespaces else []
        cluster = Cluster(root, namespaces=places, config=scenario.config, dying=scenario.dying, **vars(self._shape))
        return stack.enter_context(cluster)
