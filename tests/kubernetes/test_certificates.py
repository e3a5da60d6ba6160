"""A cluster on Kubernetes is closed: strangers get no answer, and certificates change under load without a restart."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hack import kubernetes_machine as machine
from tests.support.certificates import CLUSTER, Authority, operator, pod, spoken, unchecked_context
from tests.support.committing import Load
from tests.support.kube import kubectl, secret_files
from tests.support.muster_cluster import Pod, wait_until
from tests.support.platform_team import TOPIC, Cared

from muster_coordinator.peers.frames import encode_hello
from muster_coordinator.podapi.client import PodClient, PodRefusedError, new_session
from muster_coordinator.podapi.models import ReplicaRequest, ReplicasRequest
from muster_coordinator.security.roles import ANY_POD, Member, Role, only
from muster_coordinator.security.tls import Tls, TlsFiles, client_context
from muster_operator.certificates.issuing import new_leaf
from muster_operator.certificates.record import ClusterCertificates
from muster_operator.kube.certificates import RECORDS
from muster_operator.kube.manifests import API_PORT, METRICS_PORT, PEER_PORT, PROBE_PORT

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME, OTHER, FORGED = "muster-locked", "locked", "other", "locked-forged"
OPERATOR = "muster-system"
GROUPS = 100
RANGE = 1_000_650_000
"""A uid as OpenShift gives them to a namespace: no image knows it."""
STATUS = b"GET /v1/status HTTP/1.1\r\nHost: pod\r\n\r\n"
KAFKA_PORT = 9092
MAY_REACH = {"muster-operator": API_PORT, "muster-coordinator": PEER_PORT}
"""By the label that the policies of config/ ask for: the port that it opens."""
READ = '"event": "tls_files_read"'


@pytest.fixture(scope="module")
def locked(operator: None) -> Iterator[Cared]:
    """A cluster in a namespace that admits restricted pods only, with a uid of the namespace's own."""
    kubectl("create", "namespace", NAMESPACE)
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", NAMESPACE, restricted)
    cluster = Cared(NAMESPACE, NAME)
    try:
        user = {"runAsUser": RANGE, "runAsGroup": 0, "fsGroup": RANGE}
        cluster.apply(pods=3, anyTopic=True, podTemplate={"securityContext": user})
        cluster.wait_whole()
        cluster.wait_at_home()
        yield cluster
    finally:
        print(cluster.summary())
        print(kubectl("logs", "-n", OPERATOR, "deployment/muster-operator", "--tail=20", check=False).stdout)
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def secret(name: str) -> dict[str, bytes]:
    return secret_files(NAMESPACE, name)


def written(root: Path, name: str, contents: dict[str, bytes]) -> TlsFiles:
    directory = root / name
    directory.mkdir(exist_ok=True)
    for file, content in contents.items():
        (directory / file).write_bytes(content)
    return TlsFiles.of(directory)


def record() -> ClusterCertificates:
    """What the operator keeps; who can read this is the operator."""
    return msgspec.msgpack.decode(secret(RECORDS)[NAME], type=ClusterCertificates)


def issued(root: Path, name: str, member: Member, lifetime: timedelta = timedelta(hours=1)) -> TlsFiles:
    """A certificate of the cluster's own CA."""
    authorities = record().authorities
    leaf = new_leaf(authorities.current, member, (), datetime.now(UTC), lifetime)
    return written(root, name, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authorities.bundle})


def hello() -> bytes:
    return encode_hello("", f"{NAME}-1", "uid", "127.0.0.1:1", f"{NAME}-0")


def first(cluster: Cared) -> Pod:
    return min(cluster.pods(), key=lambda each: each.name)


def opens(context: ssl.SSLContext | None, target: Pod) -> list[str]:
    """The ports on which somebody with this gets an answer of more than TLS."""
    api = asyncio.run(spoken(API_PORT, context, STATUS, target.address))
    peers = asyncio.run(spoken(PEER_PORT, context, hello(), target.address))
    return [name for name, said in (("api", b"HTTP/1.1 200" in api), ("peers", b"muster-peer" in peers)) if said]


@pytest.fixture
def another(locked: Cared) -> Iterator[None]:
    """Another cluster of the namespace, with certificates and no pods."""
    locked.kubectl("apply", "-f", "-", stdin=json.dumps(another_cluster()))
    wait_until(lambda: f"{OTHER}-pod-tls" in locked.kubectl("get", "secrets", "-o", "name"), "another has its own")
    yield
    locked.kubectl("delete", "coordinatorcluster", OTHER)


def test_no_stranger_gets_an_answer(locked: Cared, another: None, tmp_path: Path) -> None:
    us = f"{NAMESPACE}/{NAME}"
    stranger, past = Authority(tmp_path / "stranger"), timedelta(minutes=-1)
    tries: dict[str, tuple[ssl.SSLContext | None, list[str]]] = {
        "plain text": (None, []),
        "no certificate": (unchecked_context(None), []),
        "operator of another CA": (unchecked_context(stranger.write("a", operator(us))), []),
        "pod of another CA": (unchecked_context(stranger.write("b", pod(ANY_POD, us))), []),
        "expired operator": (unchecked_context(issued(tmp_path, "c", operator(us), past)), []),
        "expired pod": (unchecked_context(issued(tmp_path, "d", pod(ANY_POD, us), past)), []),
        "another cluster's name by this CA": (unchecked_context(issued(tmp_path, "e", operator(CLUSTER))), []),
        "pod of another cluster": (unchecked_context(written(tmp_path, "f", secret(f"{OTHER}-pod-tls"))), []),
        "reader of another cluster": (unchecked_context(written(tmp_path, "g", secret(f"{OTHER}-reader-tls"))), []),
        "pod": (unchecked_context(written(tmp_path, "h", secret(f"{NAME}-pod-tls"))), ["peers"]),
        "reader": (unchecked_context(written(tmp_path, "i", secret(f"{NAME}-reader-tls"))), ["api"]),
    }
    target = first(locked)
    assert {name: opens(context, target) for name, (context, _) in tries.items()} == {
        name: expected for name, (_, expected) in tries.items()
    }
    assert locked.pod(target.name).restarts == 0


def another_cluster() -> dict[str, Any]:
    meta = {"name": OTHER, "namespace": NAMESPACE}
    spec = {"pods": 1, "hibernate": True}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "CoordinatorCluster", "metadata": meta, "spec": spec}


def test_a_reader_reads_and_changes_nothing(locked: Cared, tmp_path: Path) -> None:
    files = written(tmp_path, "reader", secret(f"{NAME}-reader-tls"))
    target = first(locked)

    async def attempt() -> None:
        check = only(f"{NAMESPACE}/{NAME}", (Role.POD,))
        tls = Tls(files, lambda each: client_context(each, check=check))
        async with new_session() as session:
            client = PodClient(session, target.name, f"{target.address}:{API_PORT}", tls)
            assert (await client.status()).started
            with pytest.raises(PodRefusedError, match="may not call"):
                await client.create_replicas(ReplicasRequest(fencing_token=1 << 40, partitions=(ReplicaRequest(0),)))

    asyncio.run(attempt())


def test_probes_and_metrics_are_plain_and_nothing_else_is_there(locked: Cared) -> None:
    target = first(locked)

    def answer(port: int, path: str) -> bytes:
        request = f"GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n".encode()
        return asyncio.run(spoken(port, None, request, target.address))

    assert answer(PROBE_PORT, "/healthz/ready").startswith(b"HTTP/1.1 200")
    assert b"muster_" in answer(METRICS_PORT, "/metrics")
    assert answer(PROBE_PORT, "/v1/status").startswith(b"HTTP/1.1 404")
    assert answer(METRICS_PORT, "/v1/status").startswith(b"HTTP/1.1 404")


def test_pods_have_no_token_and_write_nowhere_but_to_their_volume(locked: Cared) -> None:
    target = first(locked)
    (raw,) = (each for each in locked.objects("pods") if each["metadata"]["name"] == target.name)
    assert raw["spec"]["automountServiceAccountToken"] is False
    mounted = [each["mountPath"] for each in raw["spec"]["containers"][0]["volumeMounts"]]
    assert sorted(mounted) == ["/etc/muster/tls", "/var/lib/muster"]
    said = inside(
        locked,
        target,
        "import os, pathlib; print(os.getuid())\n"
        "print(pathlib.Path('/var/run/secrets/kubernetes.io').exists())\n"
        "for path in ('/x', '/etc/muster/tls/x', '/opt/muster/x', '/tmp/x', '/var/lib/muster/x'):\n"
        "    try: open(path, 'w').close(); print(path)\n"
        "    except OSError: pass",
    )
    assert said.split() == [str(RANGE), "False", "/var/lib/muster/x"]


def inside(cluster: Cared, target: Pod, program: str) -> str:
    return cluster.kubectl("exec", target.name, "--", "python3", "-c", program)


def test_a_pod_with_forged_labels_is_not_called(locked: Cared) -> None:
    """By labels alone a pod gets nothing from the operator, which knows its pods by their owner."""
    (raw, *_) = locked.objects("pods", "-l", f"muster.dev/cluster={NAME}")
    before = set(locked.runs())
    forged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": FORGED, "labels": raw["metadata"]["labels"]},
        "spec": {**stranger_spec(raw), "containers": [{**stranger_container(raw), "command": ["sleep", "600"]}]},
    }
    locked.kubectl("apply", "-f", "-", stdin=json.dumps(forged))
    try:
        wait_until(lambda: bool(address_of(NAMESPACE, FORGED)), "it has an address")
        operator_log = kubectl("logs", "-n", OPERATOR, "deployment/muster-operator").stdout
        assert FORGED not in operator_log
        assert locked.status()["pods"] == len(before)
        assert FORGED not in {each.leader for each in locked.partitions().values()}
    finally:
        locked.kubectl("delete", "pod", FORGED, "--grace-period=0", "--force", check=False)


def stranger_spec(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RANGE,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def stranger_container(raw: dict[str, Any]) -> dict[str, Any]:
    container = raw["spec"]["containers"][0]
    return {"name": "stranger", "image": container["image"], "securityContext": container["securityContext"]}


def address_of(namespace: str, name: str) -> str:
    return kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.podIP}", check=False).stdout


@pytest.fixture
def enforced() -> Iterator[None]:
    """A network that enforces NetworkPolicies, as kind's does. That of hack/localkube does so while it is asked to."""
    name = os.environ.get("MUSTER_TEST_LOCALKUBE")
    if not name:
        yield
        return
    if not machine.has("ipset"):
        pytest.skip("NetworkPolicies are enforced with ipset: apt-get install ipset")
    machine.call(machine.LOCALKUBE, "policies", "on", NAME=name)
    yield
    machine.call(machine.LOCALKUBE, "policies", "off", NAME=name)


def test_a_pod_of_another_namespace_reaches_no_inner_port(locked: Cared, enforced: None) -> None:
    """By the NetworkPolicies of config/, also if it has the labels of those who may. These reach what they have to."""
    raw, *_ = locked.objects("pods", "-l", f"muster.dev/cluster={NAME}")
    policies = (Path(__file__).parents[2] / "config" / "network-policies.yaml").read_text(encoding="utf-8")
    elsewhere, doors = "muster-elsewhere", {API_PORT, PEER_PORT, KAFKA_PORT}
    kubectl("create", "namespace", elsewhere)
    try:
        pods = [(namespace, name) for namespace in (NAMESPACE, elsewhere) for name in MAY_REACH]
        for namespace, name in pods:
            kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(sleeper(raw, name)))
        for namespace, name in pods:
            kubectl("wait", "-n", namespace, f"pod/{name}", "--for=condition=Ready", "--timeout=50s")
            assert reached(namespace, name, first(locked), doors) == doors, "without policies all is open"
        locked.kubectl("apply", "-f", "-", stdin=policies.replace("muster-system", NAMESPACE))
        strangers = [partial(reached, elsewhere, name, first(locked), doors) for name in MAY_REACH]
        wait_until(lambda: all(each() == {KAFKA_PORT} for each in strangers), "only the door for clients is open")
        for name, port in MAY_REACH.items():
            assert reached(NAMESPACE, name, first(locked), doors) == {KAFKA_PORT, port}
    finally:
        kubectl("delete", "namespace", elsewhere, "--wait=false")
        locked.kubectl("delete", "networkpolicy", "--all")
        locked.kubectl("delete", "pod", *MAY_REACH, "--grace-period=0", "--force", check=False)
    locked.wait_whole()


def sleeper(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """A pod that does nothing, with a label that policies ask for."""
    container = {**stranger_container(raw), "command": ["sleep", "600"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": name}},
        "spec": {**stranger_spec(raw), "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def reached(namespace: str, name: str, target: Pod, ports: set[int]) -> set[int]:
    """To which of these ports of the target a pod can connect."""
    program = (
        f"import socket\nfor port in {ports}:\n"
        f" try: socket.create_connection(('{target.address}', port), 3); print(port)\n"
        " except OSError: pass"
    )
    said = kubectl("exec", "-n", namespace, name, "--", "python3", "-c", program).stdout
    return {int(each) for each in said.split()}


class Rotation:
    """Certificates that are exchanged at once: time goes by in the operator's record, and kubelets are woken."""

    def __init__(self, cluster: Cared) -> None:
        self._cluster = cluster
        self._kicks = 0

    def leaves(self) -> None:
        """As if half of their life were over."""
        before = secret(f"{NAME}-pod-tls")["tls.crt"]
        known = record()
        old = new_leaf(known.authorities.current, Member(f"{NAMESPACE}/{NAME}", Role.POD, ANY_POD), (), *_nearly_over())
        self._put(msgspec.structs.replace(known, pods=old, reader=old))
        self._until(lambda: secret(f"{NAME}-pod-tls")["tls.crt"] not in (before, old.certificate))

    def authority(self, number: int) -> None:
        """All three steps; `number`: how many were asked for."""
        self._cluster.patch(security={"caRound": number})
        self._until(lambda: record().authorities.following is not None)
        self._settled()
        self._until(lambda: record().authorities.past is not None)
        self._settled()
        self._until(lambda: record().authorities.past is None)

    def _settled(self) -> None:
        known = record()
        since = known.authorities.since - timedelta(hours=1)
        self._put(msgspec.structs.replace(known, authorities=msgspec.structs.replace(known.authorities, since=since)))

    def _put(self, changed: ClusterCertificates) -> None:
        entry = base64.b64encode(msgspec.msgpack.encode(changed)).decode()
        patch = json.dumps({"data": {NAME: entry}})
        self._cluster.kubectl("patch", "secret", RECORDS, "--type=merge", "-p", patch)

    def _until(self, holds: Callable[[], bool]) -> None:
        """Until the operator has done it, its Secret says so, and every pod has read that."""
        wait_until(holds, "the operator takes the next step", 90)
        wait_until(lambda: secret(f"{NAME}-pod-tls")["ca.crt"] == record().authorities.bundle, "it is applied")
        self._kicks += 1
        note = f"muster.dev/test-kick={self._kicks}"
        self._cluster.kubectl("annotate", "pods", "-l", f"muster.dev/cluster={NAME}", note, "--overwrite")
        wanted = secret(f"{NAME}-pod-tls")
        wait_until(lambda: all(self._has(each, wanted) for each in self._cluster.pods()), "pods have the files", 150)

    def _has(self, target: Pod, wanted: dict[str, bytes]) -> bool:
        """Its mount shows the files, and it has read them since: all four contexts, once more than before."""
        program = "import sys; sys.stdout.write(''.join(open(f'/etc/muster/tls/{n}').read() for n in sys.argv[1:]))"
        names = sorted(wanted)
        shown = self._cluster.kubectl("exec", target.name, "--", "python3", "-c", program, *names, check=False)
        return shown == b"".join(wanted[name] for name in names).decode()


def _nearly_over() -> tuple[datetime, timedelta]:
    return datetime.now(UTC) - timedelta(days=9), timedelta(days=14)


def test_no_key_is_in_logs_events_statuses_or_metrics(locked: Cared) -> None:
    authorities = record().authorities
    keys = [secret(f"{NAME}-pod-tls")["tls.key"], secret(f"{NAME}-reader-tls")["tls.key"], authorities.current.key]
    lines = {line for key in keys for line in key.decode().splitlines() if "-----" not in line}
    told = [locked.kubectl("logs", each.name) for each in locked.pods()]
    told.append(kubectl("logs", "-n", OPERATOR, "deployment/muster-operator").stdout)
    kinds = "coordinatorclusters,offsetstopics,offsetspartitions,statefulsets,pods,services,events,configmaps"
    told.append(locked.kubectl("get", kinds, "-o", "yaml"))
    request = b"GET /metrics HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n"
    told.append(asyncio.run(spoken(METRICS_PORT, None, request, first(locked).address)).decode())
    assert all(told)
    assert len(lines) == 9
    assert [line for line in lines if any(line in text for text in told)] == []


def test_leaf_and_authority_change_three_times_under_load(locked: Cared, capsys: pytest.CaptureFixture[str]) -> None:
    runs, before = locked.runs(), record()
    rotation = Rotation(locked)

    async def under_load() -> Load:
        load = Load(locked.bootstrap(), GROUPS, TOPIC)
        committing = asyncio.create_task(load.run())
        for number in (1, 2, 3):
            await asyncio.to_thread(rotation.leaves)
            await asyncio.to_thread(rotation.authority, number)
        load.stop()
        await committing
        await load.check_nothing_is_lost()
        return load

    load = asyncio.run(under_load())
    assert load.failed == []
    assert min(load.acked.values()) > 20
    assert locked.runs() == runs, "no pod was restarted"
    after = record()
    assert after.round == before.round + 3
    assert after.authorities.current.certificate != before.authorities.current.certificate
    locked.wait_whole()
    with capsys.disabled():
        total = sum(load.acked.values())
        print(f"\n  {total} commits of {GROUPS} groups, none lost or failed; the longest took {load.longest_s:.2f} s")
    # What is new is made with the new CA only: a pod that starts again finds the others, and the operator finds it.
    lost = first(locked)
    locked.kill_process(lost)
    wait_until(lambda: locked.pod(lost.name).restarts == lost.restarts + 1, "the container runs again")
    locked.wait_whole()
