"""The operator's `Workload` in embedded mode: pods are processes of this machine, on loopback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from muster_cli.local.data_dir import DataDir, RunningPod
from muster_cli.local.ports import LOOPBACK
from muster_cli.local.supervisor import PodSupervisor, stop_all
from muster_operator.api.models import CoordinatorCluster, MusterUser
from muster_operator.plan.access import AccessState
from muster_operator.plan.observation import StrandedVolume
from muster_operator.store.port import ClusterKey, Notify, Unwatch
from muster_operator.store.workload import PodInfo, PodPhase, WorkloadState, pod_settings

if TYPE_CHECKING:
    from muster_cli.local.certificates import LocalTls
    from muster_coordinator.security.tls import Tls

STOP_DEADLINE_S = 10.0


@dataclass(frozen=True)
class PodPorts:
    kafka: int
    api: int
    peer: int


@dataclass(frozen=True)
class PodNetwork:
    """The addresses on which a pod listens. `prefix` comes before its command line, for instance to run it in a network
    namespace.
    """

    host: str = LOOPBACK
    prefix: tuple[str, ...] = ()


def coordinator_command(pod: RunningPod, uid: str, data: DataDir, settings: Mapping[str, str]) -> list[str]:
    """The command line of a pod. Its data directory is an argument, by which `DataDir.leftover_pods` recognizes it."""
    command = [sys.executable, "-m", "muster_coordinator.process.main"]
    command += ["--pod", pod.name, "--pod-uid", uid, "--node-id", str(pod.node_id)]
    command += ["--data-dir", str(data.pod(pod.name)), "--api-listen", pod.api_address]
    command += ["--kafka-listen", pod.kafka_address, "--advertise", pod.kafka_address]
    command += ["--peer-listen", pod.peer_address, "--peer-advertise", pod.peer_address]
    for name, value in settings.items():
        command += ["--config", f"{name}={value}"]
    return command


class LocalWorkload:
    """The pods `<cluster>-0`, `<cluster>-1`, ... as supervised processes.

    `ports` and `networks`: by the ordinal of the pod; without networks all pods use loopback. Without `tls`
    pod API and peer network are plain. `changed` is called after
    each start and end of a pod, after the operator. `report` takes lines for the person at the terminal.
    """

    backups = None  # people and their timers call `muster backup create --data-dir`
    restores = None  # `muster restore --data-dir` makes a whole instance

    def __init__(
        self,
        key: ClusterKey,
        data: DataDir,
        ports: Sequence[PodPorts],
        *,
        changed: Callable[[], None],
        report: Callable[[str], None],
        command: Callable[[RunningPod, str, DataDir, Mapping[str, str]], Sequence[str]] = coordinator_command,
        networks: Sequence[PodNetwork] = (),
        restart_after_s: float = 0.0,
        tls: LocalTls | None = None,
    ) -> None:
        self.supervisors: list[PodSupervisor] = []
        self._key = key
        self._data = data
        self._ports = ports
        self._changed = changed
        self._report = report
        self._command = command
        self._networks = networks
        self._restart_after_s = restart_after_s
        self._tls = tls
        self._notify: list[Notify] = []

    def watch(self, notify: Notify) -> Unwatch:
        self._notify.append(notify)
        return partial(self._notify.remove, notify)

    def state(self, cluster: CoordinatorCluster) -> WorkloadState:
        return WorkloadState()

    async def ensure_pods(self, cluster: CoordinatorCluster, *, keep_template: bool = False) -> str:
        """Start the declared pods that have no supervisor yet. Supervisors keep them alive. Returns what was done."""
        if keep_template:
            return "settings that a pod would refuse: no pod is started"
        missing = range(len(self.supervisors), min(cluster.spec.pods, len(self._ports)))
        for ordinal in missing:
            self._start(ordinal, pod_settings(cluster))
        return f"started {len(missing)} pods" if missing else f"{len(self.supervisors)} pods are supervised"

    async def keep_users(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> str:
        """There are no MusterUsers: an embedded cluster has files (`muster local user`)."""
        return ""

    def access(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> AccessState | None:
        return None

    async def restart_pod(self, key: ClusterKey, name: str, uid: str) -> None:
        """Restart the pod if it still has this uid. In embedded mode no rollout asks for it: pods have no template."""
        for supervisor in self.supervisors:
            if (supervisor.pod.name, supervisor.uid) == (name, uid):
                supervisor.restart()

    async def replace_volume(self, key: ClusterKey, volume: StrandedVolume) -> bool:
        """There are no volumes: directories are where the pods are."""
        return False

    async def pods(self, key: ClusterKey) -> tuple[PodInfo, ...]:
        if key != self._key:
            return ()
        tls = self._tls.operator if self._tls is not None else None
        return tuple(_info(supervisor, tls) for supervisor in self.supervisors)

    def bootstrap(self, cluster: CoordinatorCluster, pods: tuple[PodInfo, ...]) -> str:
        return ",".join(pod.kafka_address for pod in pods)

    async def stop(self) -> list[str]:
        """End all pods. Returns the names of those that had to be killed after `STOP_DEADLINE_S` seconds."""
        return await stop_all(self.supervisors, deadline_s=STOP_DEADLINE_S)

    def kill(self) -> None:
        """End all pods at once (SIGKILL)."""
        for supervisor in self.supervisors:
            supervisor.kill()

    def running(self) -> tuple[RunningPod, ...]:
        return tuple(supervisor.pod for supervisor in self.supervisors)

    def _start(self, ordinal: int, settings: Mapping[str, str]) -> None:
        ports = self._ports[ordinal]
        network = self._networks[ordinal] if self._networks else PodNetwork()
        pod = RunningPod(
            name=f"{self._key.name}-{ordinal}",
            node_id=ordinal,
            kafka_address=f"{network.host}:{ports.kafka}",
            api_address=f"{network.host}:{ports.api}",
            process=None,
            peer_address=f"{network.host}:{ports.peer}",
        )
        self._data.pod(pod.name).mkdir(0o700, exist_ok=True)
        secured = self._tls.pod_options(pod.name) if self._tls is not None else []
        supervisor = PodSupervisor(
            pod,
            lambda uid: [*network.prefix, *self._command(pod, uid, self._data, settings), *secured],
            self._data.logs / f"{pod.name}.log",
            on_change=self._on_change,
            report=self._report,
            restart_after_s=self._restart_after_s,
        )
        self.supervisors.append(supervisor)
        supervisor.start()

    def _on_change(self) -> None:
        for notify in self._notify:
            notify(self._key)
        self._changed()


def _info(supervisor: PodSupervisor, tls: Tls | None) -> PodInfo:
    pod = supervisor.pod
    return PodInfo(
        name=pod.name,
        node_id=pod.node_id,
        uid=supervisor.uid,
        api_address=pod.api_address,
        kafka_address=pod.kafka_address,
        phase=PodPhase.PENDING if pod.process is None else PodPhase.RUNNING,
        tls=tls,
    )
