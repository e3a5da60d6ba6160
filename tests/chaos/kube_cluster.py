"""A cluster on a real Kubernetes as a fault sees it. Faults go through pykube-ng, or this machine's processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pykube
import pykube.exceptions
import requests
from hack import kubernetes_machine as machine
from tests.chaos.errors import HarnessError, Skipped
from tests.chaos.named import LeaderWatch
from tests.chaos.network import Namespace
from tests.chaos.observed import SETTLE_TIMEOUT_S, NetworkedCluster, OperatorRules, Place
from tests.support.kube import REPOSITORY, kubectl, secret_files
from tests.support.muster_cluster import process_of, process_with

from muster_operator.api.models import GROUP, VERSION

NAMESPACE = "muster-chaos"
NAME = "chaos"
OPERATOR_NAMESPACE = "muster-system"
API_PORT, KAFKA_PORT = 9640, 9092
CALL_TIMEOUT_S = 3
READY_TIMEOUT_S = 120.0
OPERATOR_TIMEOUT_S = 55
MAX_EVENTS = 10
UNREACHABLE = (requests.exceptions.RequestException, pykube.exceptions.PyKubeError)

RESOURCES = """\
apiVersion: muster.dev/v1alpha1
kind: CoordinatorCluster
metadata: {{name: {name}}}
spec:
  pods: {pods}
  listeners: [{{name: internal, advertise: PodIP}}]
  storage: {{size: 1Gi}}
  resources: {{requests: {{cpu: 400m, memory: 128Mi}}}}
  topics: [{{name: chaos, partitions: 1}}]
---
apiVersion: muster.dev/v1alpha1
kind: OffsetsTopic
metadata: {{name: offsets}}
spec:
  clusterRef: {{name: {name}}}
  partitions: {partitions}
  replicationFactor: {factor}
"""


class KubeCluster(NetworkedCluster):
    """Pods of a CoordinatorCluster. Their addresses are those that were seen last while the API server is away.

    Networks can be cut where the pods' processes are this machine's (hack/localkube).
    """

    def __init__(self, *, pods: int, partitions: int, factor: int) -> None:
        super().__init__([f"{NAME}-{ordinal}" for ordinal in range(pods)], partitions, factor)
        config = pykube.KubeConfig.from_file(os.environ["KUBECONFIG"])
        self.api = pykube.HTTPClient(config, timeout=CALL_TIMEOUT_S)
        self._seen: list[Place] = []
        self._networks: dict[
            str, int
        ] = {}  # by the pod's uid: an open file keeps the namespace known without its process

    def install(self) -> None:
        """CRDs, operator and the cluster's resources; until everything is led. Raises HarnessError."""
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))
        kubectl("apply", "-k", str(REPOSITORY / "config"))
        # the image has the same name as the one before
        kubectl("-n", OPERATOR_NAMESPACE, "rollout", "restart", "deployment/muster-operator")
        timeout = f"--timeout={OPERATOR_TIMEOUT_S}s"
        kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/muster-operator", timeout)
        _new_namespace(NAMESPACE)
        manifest = RESOURCES.format(name=NAME, pods=len(self.names), partitions=self.partitions, factor=self.factor)
        kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=manifest)
        self.wait(self._all_run, "every pod runs", READY_TIMEOUT_S)
        self.reader = _reader()
        self.wait_settled()

    def _all_run(self) -> bool:
        return len(self.places()) == len(self.names)

    def wait(self, holds: Callable[[], bool], what: str, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """An API server that does not answer is asked again."""

        def known_to_hold() -> bool:
            try:
                return holds()
            except UNREACHABLE:
                return False

        super().wait(known_to_hold, what, timeout_s)

    def remove(self) -> None:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false", check=False)

    def places(self) -> list[Place]:
        try:
            pods = [pod.obj for pod in self._pods()]
        except UNREACHABLE:
            return self._seen
        running = [pod for pod in pods if pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]]
        self._seen = [_place(pod) for pod in running]
        return self._seen

    def leader_watch(self) -> AbstractContextManager[LeaderWatch | None]:
        return LeaderWatch(NAMESPACE)

    def last_words(self) -> str:
        there = kubectl("-n", NAMESPACE, "get", "pods,coordinatorclusters,offsetstopics", check=False).stdout
        events = kubectl("-n", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp", check=False).stdout
        return "\n".join([there, *events.splitlines()[-MAX_EVENTS:]])

    def save_logs(self, directory: Path) -> None:
        """What pods and operator said, also before their last restart, as far as the cluster still has it."""
        wanted = [(NAMESPACE, f"pod/{name}") for name in self.names]
        for namespace, source in [*wanted, (OPERATOR_NAMESPACE, "deployment/muster-operator")]:
            for previous in ("true", "false"):
                said = kubectl("-n", namespace, "logs", source, f"--previous={previous}", check=False).stdout
                with (directory / f"{source.rpartition('/')[2]}.log").open("a", encoding="utf-8") as log:
                    log.write(said)

    def uid(self, pod: str) -> str:
        """ "" when there is none of that name."""
        return next((each.obj["metadata"]["uid"] for each in self._pods() if each.name == pod), "")

    def delete(self, pod: str, *, grace_s: int | None = None) -> None:
        """As kubectl delete pod; `grace_s` 0: forced."""
        _delete(self.api, self._pod(pod), grace_s)

    def evict(self, pod: str) -> None:
        """As kubectl drain does. Raises HarnessError when it is refused."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        answer = self.api.post(version="v1", namespace=NAMESPACE, url=f"pods/{pod}/eviction", json=body)
        if not answer.ok:
            raise HarnessError(f"eviction of {pod}: {answer.text}")

    def cordon(self) -> None:
        for node in pykube.Node.objects(self.api):
            node.cordon()

    def uncordon(self) -> None:
        for node in pykube.Node.objects(self.api):
            node.uncordon()

    def nodes_are_ready(self) -> bool:
        conditions = [each for node in pykube.Node.objects(self.api) for each in node.obj["status"]["conditions"]]
        return all(each["status"] == "True" for each in conditions if each["type"] == "Ready")

    def signal_process(self, pod: str, number: signal.Signals) -> None:
        """To the container's process; SIGKILL is what the kernel does to one that takes too much memory."""
        os.kill(self.process(pod), number)

    def process(self, pod: str) -> int:
        """Of the pod's container. To find it takes both processors for some milliseconds: not in a fault."""
        return process_of(self.uid(pod))

    def namespace(self, pod: str) -> Namespace:
        own = self.place(pod)
        others = tuple(_host(place) for place in self.places() if place.name != pod)
        uid = self.uid(pod)
        return Namespace(_host(own), others, self._inside(uid, lambda: process_of(uid)))

    def operator_rules(self, pod: str) -> OperatorRules:
        host = self.operator().host
        return OperatorRules(f"input ip saddr {host}", f"output ip daddr {host}")

    def operator(self) -> Namespace:
        """The network of the operator's pod."""
        pods = [pod.obj for pod in self.operators()]
        meta, host = next((pod["metadata"], pod["status"]["podIP"]) for pod in pods if pod["status"].get("podIP"))
        process = partial(process_with, "MUSTER_OPERATOR_POD", meta["name"])
        return Namespace(host, (), self._inside(meta["uid"], process))

    def api_server(self) -> str:
        """The address at which pods find the API server."""
        return str(pykube.Service.objects(self.api).get_by_name("kubernetes").obj["spec"]["clusterIP"])

    def _inside(self, uid: str, process: Callable[[], int]) -> tuple[str, ...]:
        if machine.has_kind():
            raise Skipped("networks of pods are cut on hack/localkube only")
        if uid not in self._networks:
            self._networks[uid] = os.open(f"/proc/{process()}/ns/net", os.O_RDONLY)
        return ("nsenter", f"--net=/proc/{os.getpid()}/fd/{self._networks[uid]}")

    def lose_volume(self, pod: str) -> None:
        """Forced deletion of the pod and of its claim."""
        claim = pykube.PersistentVolumeClaim.objects(self.api, namespace=NAMESPACE).get_by_name(f"data-{pod}")
        claim.delete()
        self.delete(pod, grace_s=0)

    def operators(self) -> list[Any]:
        """The operator's pods."""
        return list(pykube.Pod.objects(self.api, namespace=OPERATOR_NAMESPACE))

    def delete_operators(self, pods: Sequence[Any]) -> None:
        """By force."""
        for pod in pods:
            _delete(self.api, pod, 0)

    def wait_operators_replaced(self, before: Sequence[Any]) -> None:
        """Until another pod of the operator's is ready, and none of those is there."""
        gone = {pod.obj["metadata"]["uid"] for pod in before}

        def replaced() -> bool:
            now = self.operators()
            return any(pod.ready for pod in now) and gone.isdisjoint(pod.obj["metadata"]["uid"] for pod in now)

        self.wait(replaced, "the operator is replaced", OPERATOR_TIMEOUT_S)

    def restart_all(self, mark: str) -> None:
        """Change the pods' template, which makes the operator replace one after the other."""
        self._patch(f"coordinatorclusters/{NAME}", {"spec": {"podTemplate": {"annotations": {"chaos": mark}}}})

    def create_another(self, name: str, partitions: int) -> Callable[[], None]:
        """Declare a cluster of one pod in a namespace of its own; what is returned waits for it and removes it."""
        namespace = f"{NAMESPACE}-{name}"
        _new_namespace(namespace)
        manifest = RESOURCES.format(name=NAME, pods=1, partitions=partitions, factor=1)
        kubectl("-n", namespace, "apply", "-f", "-", stdin=manifest)

        def finish() -> None:
            kubectl("-n", namespace, "wait", "offsetstopic/offsets", "--for=condition=Ready", "--timeout=55s")
            kubectl("delete", "namespace", namespace, "--wait=false")

        return finish

    def change_factor(self, factor: int) -> None:
        self._patch("offsetstopics/offsets", {"spec": {"replicationFactor": factor}})

    def _patch(self, url: str, patch: dict[str, Any]) -> None:
        """Of one of our resources. Not by kubectl: a program that starts takes 0.1 s of a processor, in the fault."""
        headers = {"Content-Type": "application/merge-patch+json"}
        version = f"{GROUP}/{VERSION}"
        answer = self.api.patch(version=version, namespace=NAMESPACE, url=url, json=patch, headers=headers)
        self.api.raise_for_status(answer)

    def wait_replaced(self, before: dict[str, str]) -> None:
        """Until each pod of (name -> uid) has another uid and answers."""

        def replaced() -> bool:
            return all(self.uid(name) not in ("", uid) for name, uid in before.items())

        self.wait(replaced, "pods are replaced", READY_TIMEOUT_S)
        self.wait_settled()

    def _pods(self) -> Any:
        return pykube.Pod.objects(self.api, namespace=NAMESPACE).filter(selector={"muster.dev/cluster": NAME})

    def _pod(self, name: str) -> Any:
        return pykube.Pod.objects(self.api, namespace=NAMESPACE).get_by_name(name)


@contextmanager
def kube_cluster(words: Path, *, pods: int, partitions: int, factor: int) -> Iterator[KubeCluster]:
    """A cluster on the Kubernetes for tests, started when it is not up. Raises Skipped, HarnessError.

    `words`: where all that was said stays when the cluster does not come up; it would go with it.
    """
    missing = machine.missing()
    if missing:
        raise Skipped("; ".join(missing))
    before = dict(os.environ)
    try:
        with machine.running_cluster() as environment:
            os.environ.update(environment, KUBECONFIG=environment["MUSTER_TEST_KUBECONFIG"])
            cluster = KubeCluster(pods=pods, partitions=partitions, factor=factor)
            try:
                try:
                    cluster.install()
                except Exception:
                    _keep_words(cluster, words)
                    raise
                yield cluster
            finally:
                cluster.remove()
    except (machine.ClusterError, subprocess.CalledProcessError) as error:
        raise HarnessError(f"{error}: {getattr(error, 'stderr', '')}") from None
    finally:
        os.environ.clear()
        os.environ.update(before)


def _keep_words(cluster: KubeCluster, directory: Path) -> None:
    if not machine.has_kind():
        shutil.copytree(Path(machine.localkube_setting("STATE")) / "log", directory / "kubernetes")
    with suppress(subprocess.SubprocessError):  # an API server that does not answer
        (directory / "cluster.log").write_text(cluster.last_words(), encoding="utf-8")
        cluster.save_logs(directory)


def _component(name: str) -> tuple[Path, int]:
    """The directory of hack/localkube, and the process of one of its programs. Raises Skipped elsewhere."""
    if machine.has_kind():
        raise Skipped(f"{name} is stopped on hack/localkube only")
    state = Path(machine.localkube_setting("STATE"))
    return state, int((state / "pid" / name).read_text())


@contextmanager
def kubelet_frozen() -> Iterator[None]:
    """Containers run on, and nobody says so to the API server. Raises Skipped where it is not hack/localkube."""
    _, pid = _component("kubelet")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def api_server_away(api: pykube.HTTPClient) -> Iterator[None]:
    """The API server of hack/localkube ends, and is started again as it was. Raises Skipped elsewhere."""
    state, pid = _component("kube-apiserver")
    namespace = machine.localkube_setting("NAME")
    pid_file = state / "pid" / "kube-apiserver"
    command, settings = (_words(Path(f"/proc/{pid}") / file) for file in ("cmdline", "environ"))
    environment = dict(each.split("=", 1) for each in settings)
    group = _processor_group(pid)
    os.kill(pid, signal.SIGKILL)
    try:
        yield
    finally:
        with (state / "log" / "kube-apiserver.log").open("ab") as log:
            inside = ["nsenter", f"--net=/var/run/netns/{namespace}"]
            server = subprocess.Popen(
                [*inside, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        group.write_text(f"{server.pid}\n")
        pid_file.write_text(f"{server.pid}\n")
        _wait_for_api_server(api)


def _words(file: Path) -> list[str]:
    """Of a file under /proc whose words end with a zero byte."""
    return file.read_bytes().decode().rstrip("\0").split("\0")


def _processor_group(pid: int) -> Path:
    """Where a process is written that shall have its part of the processors with this one: cgroup v1, else v2."""
    groups = dict(line.split(":")[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    controllers = next((each for each in groups if "cpu" in each.split(",")), "")
    return Path("/sys/fs/cgroup", controllers, groups[controllers].lstrip("/"), "cgroup.procs")


def _wait_for_api_server(api: pykube.HTTPClient) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not _is_ready(api):
        if time.monotonic() > deadline:
            raise HarnessError("the API server did not come back")
        time.sleep(0.2)


def _is_ready(api: pykube.HTTPClient) -> bool:
    try:
        return bool(api.session.get(f"{api.url}/readyz", timeout=CALL_TIMEOUT_S).ok)
    except UNREACHABLE:
        return False


def _delete(api: Any, pod: Any, grace_s: int | None) -> None:
    """pykube's own delete knows no grace period."""
    body = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    api.raise_for_status(api.delete(**pod.api_kwargs(data=json.dumps(body))))


def _reader() -> ssl.SSLContext:
    """What the operator gives to those who may read what pods say."""
    files = secret_files(NAMESPACE, f"{NAME}-reader-tls")
    context = ssl.create_default_context(cadata=files["ca.crt"].decode())
    context.check_hostname = False  # pods are asked by their addresses
    with tempfile.TemporaryDirectory() as directory:
        for name, content in files.items():
            (Path(directory) / name).write_bytes(content)
        context.load_cert_chain(Path(directory) / "tls.crt", Path(directory) / "tls.key")
    return context


def _new_namespace(name: str) -> None:
    """That of an earlier run may be there still, or on its way out."""
    kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=55s")
    kubectl("create", "namespace", name)


def _host(place: Place) -> str:
    return place.api.rpartition(":")[0]


def _place(pod: dict[str, Any]) -> Place:
    address = pod["status"]["podIP"]
    return Place(pod["metadata"]["name"], f"{address}:{API_PORT}", f"{address}:{KAFKA_PORT}")
