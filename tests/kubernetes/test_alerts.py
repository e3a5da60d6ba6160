"""Alerts fire on their faults and go out after them: a real Prometheus, which finds the pods by the PodMonitors of
config/, evaluates the rules of config/ on what real faults do, and the commands of the runbook are run
as they are written.

A minute of the rules lasts two seconds here: `for` and windows are shortened alike (tests/support/prometheus.py).
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from hack import kubernetes_machine as machine
from hack.alerts import TRIED
from tests.support.kube import install_operator, kubectl, secret_files
from tests.support.muster_cluster import Pod, process_of, wait_until
from tests.support.on_call import OnCall
from tests.support.platform_team import Cared, Load, cared_for
from tests.support.prometheus import running_prometheus

from muster_coordinator.security.roles import ANY_POD, Member, Role
from muster_operator.certificates.issuing import new_leaf
from muster_operator.certificates.record import ClusterCertificates
from muster_operator.kube.certificates import RECORDS

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME, OPERATOR = "muster-alerts", "watched", "muster-system"
SECONDS_OF_A_MINUTE = 2
PARTITIONS = 60
CONNECTIONS = 200
"""The most that one address may hold."""
WRITABLE, LEADERLESS = "MusterStorageNotWritable", "MusterPartitionsLeaderless"
BEHIND = 100_000
"""Records that MusterReplicasBehind takes for too many."""
OUT_S = 200.0
"""Longer than the longest window of a rule, an hour, lasts here."""


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    if machine.has_kind():
        pytest.skip("kind's StorageClass cannot grow volumes; hack/localkube's can")
    install_operator()
    limited = {"size": "64Mi", "storageClassName": "limited"}
    settings = {"max.connections.per.ip": str(CONNECTIONS), "offsets.topic.segment.bytes": "16384"}
    settings["offsets.commit.timeout.ms"] = "200"  # less than the time in which a leader that is alone resigns
    storage = {**limited, "archive": {**limited, "size": "192Mi"}}
    with cared_for(
        NAMESPACE, NAME, pods=3, partitions=PARTITIONS, storage=storage, settings=settings, anyTopic=True
    ) as made:
        yield made


@pytest.fixture(scope="module")
def on_call(cluster: Cared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    folder = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(folder, SECONDS_OF_A_MINUTE) as prometheus:

        def is_scraped() -> bool:
            wanted = f'up{{namespace=~"{NAMESPACE}|{OPERATOR}"}} == 1'
            return len({each["metric"]["pod"] for each in prometheus.query(wanted)}) == 4

        wait_until(is_scraped, "three pods and the operator are scraped")
        yield OnCall(prometheus, {NAMESPACE, OPERATOR})


def volume(pod: Pod, name: str = "muster") -> Path:
    """The volume of a pod that runs, as this machine sees it."""
    return Path(f"/proc/{process_of(pod.uid)}/root/var/lib/{name}")


def fill(directory: Path) -> None:
    """Write until nothing more fits."""
    with (directory / "filler").open("ab", buffering=0) as file:
        for size in (1 << 16, 512):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def pods_by_name(cluster: Cared) -> list[Pod]:
    return sorted(cluster.pods(), key=lambda pod: pod.name)


def kill(cluster: Cared, pod: Pod) -> None:
    """Its process, and wait until there is another one that follows."""
    cluster.kill_process(pod)
    wait_until(lambda: cluster.pod(pod.name).restarts > pod.restarts, "the container runs again")
    cluster.wait_whole()


def test_leaders_that_die_often(cluster: Cared, on_call: OnCall) -> None:
    """It goes out in an hour, which is waited for by the last test."""
    alert = "MusterFailoversOften"

    def each_is_killed() -> bool:
        for pod in pods_by_name(cluster):
            kill(cluster, pod)
        return on_call.sees_now(alert)  # one that fired between the kills may be out: increase() extrapolates

    wait_until(each_is_killed, f"{alert} fires", 240)
    said = on_call.looks(alert, on_call.sees(alert))
    assert f"{NAME}-0" in said


def test_archive_without_room(cluster: Cared, on_call: OnCall) -> None:
    alert = "MusterLogNotCleaned"
    pod = pods_by_name(cluster)[0]
    fill(volume(pod, "muster-archive"))
    load = Load.begin(cluster, "archived")
    try:
        said = on_call.looks(alert, on_call.sees(alert, pod=pod.name))
        assert "segment_not_archived" in said
    finally:
        (volume(pod, "muster-archive") / "filler").unlink()
    load.end_with_nothing_lost()


def test_volumes_that_are_full(cluster: Cared, on_call: OnCall) -> None:
    """Two of three, so that no majority takes what the third pod is asked to write."""
    load = Load.begin(cluster, "full")
    full = pods_by_name(cluster)[1:]
    for pod in full:
        fill(volume(pod))
    try:
        for pod in full:
            said = on_call.looks(WRITABLE, on_call.sees(WRITABLE, pod=pod.name))
            assert "100%" in said
            assert "No space left on device" in said
        said = on_call.looks(LEADERLESS, on_call.sees(LEADERLESS, cluster=NAME))
        assert all(pod.name in said for pod in full)
    finally:
        cluster.patch(storage={"size": "160Mi"})
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    on_call.sees_it_go_out(WRITABLE)
    on_call.sees_it_go_out(LEADERLESS)


@contextmanager
def frozen(processes: Sequence[int]) -> Iterator[None]:
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_pods_that_hang(cluster: Cared, on_call: OnCall) -> None:
    """Two of three, again and again, each time until the leader that is left has resigned."""
    alert = "MusterCommitsTimeOut"
    load = Load.begin(cluster, "hung", groups=20)

    def fires_after_a_hang() -> bool:
        with frozen([process_of(pod.uid) for pod in pods_by_name(cluster)[1:]]):
            wait_until(lambda: any(each.state != "Led" for each in cluster.partitions().values()), "nobody leads")
        cluster.wait_whole()
        return bool(on_call.saw(alert))

    wait_until(fires_after_a_hang, f"{alert} fires", 240)
    on_call.looks(alert, on_call.saw(alert)[0])
    load.goes_on()
    load.end_with_nothing_lost()
    on_call.sees_it_go_out(alert)


@contextmanager
def no_node_for_new_pods() -> Iterator[None]:
    nodes = [each["metadata"]["name"] for each in json.loads(kubectl("get", "nodes", "-o", "json").stdout)["items"]]
    kubectl("cordon", *nodes)
    try:
        yield
    finally:
        kubectl("uncordon", *nodes)


def write_many(cluster: Cared, group: str, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap(), "group.id": group, "enable.auto.commit": False})
    at_once = 2000
    for position in range(records // at_once + 1):
        asked = [TopicPartition("any", number, position) for number in range(at_once)]
        consumer.commit(offsets=asked, asynchronous=False)
    consumer.close()


def test_pod_that_finds_no_node(cluster: Cared, on_call: OnCall) -> None:
    away = pods_by_name(cluster)[2]
    with no_node_for_new_pods():
        cluster.delete(away)
        wait_until(lambda: cluster.replaced(away), "another pod waits for a node")
        write_many(cluster, "many", BEHIND + 10_000)
        said = on_call.looks("MusterPeerNotHeard", on_call.sees("MusterPeerNotHeard", peer=away.name))
        assert "Pending" in said
        on_call.looks("MusterReplicasBehind", on_call.sees("MusterReplicasBehind"))
    cluster.wait_whole()
    on_call.sees_it_go_out("MusterPeerNotHeard")
    on_call.sees_it_go_out("MusterReplicasBehind")


def test_clients_without_end(cluster: Cared, on_call: OnCall) -> None:
    alert = "MusterClientsRefused"
    pod = pods_by_name(cluster)[0]
    with ExitStack() as held:
        for _ in range(CONNECTIONS + 10):
            held.enter_context(socket.create_connection((pod.address, 9092), timeout=10))
        found = on_call.sees(alert, pod=pod.name, reason="too_many_of_address")
        assert "too_many_of_address" in on_call.looks(alert, found)
    on_call.sees_it_go_out(alert)


class Rights:
    """Those of the operator."""

    def take(self, resource: str, *verbs: str) -> None:
        role = json.loads(kubectl("get", "clusterrole", "muster-operator", "-o", "json").stdout)
        for rule in role["rules"]:
            if resource in rule["resources"]:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb not in verbs]
        role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
        kubectl("replace", "-f", "-", stdin=json.dumps(role))

    def give_back(self) -> None:
        install_operator()


@pytest.fixture
def rights() -> Iterator[Rights]:
    changed = Rights()
    yield changed
    changed.give_back()


def test_operator_that_may_not_write_what_it_has_to(cluster: Cared, on_call: OnCall, rights: Rights) -> None:
    alert = "MusterReconcileFails"
    rights.take("coordinatorclusters/status", "update", "patch")
    cluster.patch(podTemplate={"annotations": {"muster.dev/test": "alerts"}})
    said = on_call.looks(alert, on_call.sees(alert))
    assert "reconcile_failed" in said
    rights.give_back()
    cluster.wait_whole()
    on_call.sees_it_go_out(alert)


def test_certificates_that_nobody_renews(cluster: Cared, on_call: OnCall, rights: Rights) -> None:
    """Nine of their fourteen days are over at once, in the operator's own record, and an operator that starts may not
    write another one."""
    alert = "MusterCertificatesDue"
    rights.take("secrets", "update", "patch")
    put_certificates(cluster, timedelta(days=9))
    kubectl("-n", OPERATOR, "rollout", "restart", "deployment/muster-operator")
    said = on_call.looks(alert, on_call.sees(alert, exported_namespace=NAMESPACE, cluster=NAME))
    assert "CertificatesDue" in said
    rights.give_back()
    on_call.sees_it_go_out(alert)


def put_certificates(cluster: Cared, age: timedelta) -> None:
    known = msgspec.msgpack.decode(secret_files(NAMESPACE, RECORDS)[NAME], type=ClusterCertificates)
    member = Member(f"{NAMESPACE}/{NAME}", Role.POD, ANY_POD)
    old = new_leaf(known.authorities.current, member, (), datetime.now(UTC) - age, timedelta(days=14))
    entry = base64.b64encode(msgspec.msgpack.encode(msgspec.structs.replace(known, pods=old, reader=old))).decode()
    cluster.kubectl("patch", "secret", RECORDS, "--type=merge", "-p", json.dumps({"data": {NAME: entry}}))


def test_operator_that_is_away(cluster: Cared, on_call: OnCall) -> None:
    alert = "MusterOperatorAway"
    kubectl("-n", OPERATOR, "scale", "deployment/muster-operator", "--replicas=0")
    on_call.looks(alert, on_call.sees(alert))
    install_operator()
    on_call.sees_it_go_out(alert)


def test_all_are_out_in_the_end(cluster: Cared, on_call: OnCall) -> None:
    for alert in sorted(on_call.fired):
        on_call.sees_it_go_out(alert, OUT_S)
    assert on_call.fired == {*TRIED}, "the runbook names these"
