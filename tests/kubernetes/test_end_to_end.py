"""The main job on a real Kubernetes: real clients, pods that the operator elects, and the loss of a leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.kube import kubectl
from tests.support.muster_cluster import MusterCluster, Partition, Pod, wait_until

from muster_cli.demo.consumers import GroupConsumer, committed_offsets
from muster_cli.demo.meter import Meter
from muster_coordinator.records.partitioner import partition_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

TOPIC, TOPIC_PARTITIONS, OFFSETS_PARTITIONS = "orders", 6, 50
GROUP = "billing"
ROLLOUT_S = 300.0
"""For three pods that are replaced one after the other, and leaders that come home: half a minute on a machine that
does nothing else, several on a busy one."""


def test_printer_columns_after_ready_show_leader_epoch_state(muster_cluster: MusterCluster) -> None:
    headings = {
        kind: muster_cluster.kubectl("get", kind).splitlines()[0].split()
        for kind in ("coordinatorclusters", "offsetstopics", "offsetspartitions")
    }
    assert {"READY", "LED", "AGE"} <= set(headings["coordinatorclusters"])
    assert {"READY", "LED", "AGE"} <= set(headings["offsetstopics"])
    assert {"LEADER", "EPOCH", "STATE", "FOLLOWING", "AGE"} <= set(headings["offsetspartitions"])


def test_every_partition_after_ready_is_led_by_an_existing_pod(muster_cluster: MusterCluster) -> None:
    partitions = muster_cluster.partitions()
    pods = {pod.name for pod in muster_cluster.pods()}
    assert set(partitions) == set(range(OFFSETS_PARTITIONS))
    assert {each.state for each in partitions.values()} == {"Led"}
    assert {each.leader for each in partitions.values()} == pods


def test_every_pod_after_ready_has_a_volume_of_its_own(muster_cluster: MusterCluster) -> None:
    claims = muster_cluster.objects("persistentvolumeclaims")
    assert len({claim["spec"]["volumeName"] for claim in claims}) == len(muster_cluster.pods())


@pytest.fixture
def members(muster_cluster: MusterCluster) -> Iterator[list[GroupConsumer]]:
    """Two members of one group that have all partitions of the topic between them, and commit."""
    bootstrap = muster_cluster.bootstrap()
    consumers = [GroupConsumer(bootstrap, GROUP, TOPIC, name) for name in ("a", "b")]
    for consumer in consumers:
        consumer.start()
    try:
        wait_until(lambda: assigned(consumers) == list(range(TOPIC_PARTITIONS)), "the group has all partitions")
        yield consumers
    finally:
        for consumer in consumers:
            consumer.stop()


def assigned(consumers: list[GroupConsumer]) -> list[int]:
    return sorted(partition for consumer in consumers for partition in consumer.assigned)


def lose_process(cluster: MusterCluster, pod: Pod) -> None:
    cluster.kill_process(pod)
    wait_until(lambda: cluster.pod(pod.name).restarts > pod.restarts, "the container runs again")


def lose_pod(cluster: MusterCluster, pod: Pod) -> None:
    cluster.delete(pod)

    def replaced() -> bool:
        return any(each.name == pod.name and each.uid != pod.uid for each in cluster.pods())

    wait_until(replaced, "the pod is replaced")


@pytest.mark.parametrize("lose", [lose_process, lose_pod], ids=["process killed", "pod deleted"])
def test_leader_lost_offsets_stay_and_the_group_goes_on_in_a_higher_epoch(
    muster_cluster: MusterCluster,
    members: list[GroupConsumer],
    lose: Callable[[MusterCluster, Pod], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    wait_until(lambda: all_at_home(muster_cluster), "every partition is led by its preferred leader", ROLLOUT_S)
    home = partition_for(GROUP, OFFSETS_PARTITIONS)
    before, shown_before = muster_cluster.partitions(), muster_cluster.row(f"offsets-{home}")
    leader = before[home].leader
    assert leader is not None
    meter = Meter(muster_cluster.bootstrap(), group_led_by(leader, muster_cluster), TOPIC)
    meter.start()
    wait_until(lambda: meter.count >= 20, "a client commits without a group")
    wait_until(lambda: all(min(each.acknowledged.values(), default=0) > 5 for each in members), "members commit")
    acknowledged = {partition: offset for each in members for partition, offset in each.acknowledged.items()}

    lost_at = time.monotonic()
    lose(muster_cluster, muster_cluster.pod(leader))
    wait_until(lambda: higher_epoch_led(muster_cluster, before, home), "the partition is led in a higher epoch")
    led_at = time.monotonic()

    committed = committed_offsets(muster_cluster.bootstrap(), GROUP, TOPIC, TOPIC_PARTITIONS, 20.0)
    assert all(committed[partition] >= offset for partition, offset in acknowledged.items())
    wait_until(lambda: all(each.acknowledged_after(led_at) for each in members), "members commit again")
    wait_until(lambda: meter.count_after(led_at) >= 20, "the client commits again")
    meter.stop()
    assert [each.error for each in (*members, meter)] == [None, None, None]
    muster_cluster.wait_ready()
    after = muster_cluster.partitions()
    touched = {index for index in before if before[index].leader == leader}
    assert {index for index in before if after[index].epoch > before[index].epoch} == touched
    assert all(after[index] == before[index] for index in before if index not in touched)
    shown_after = muster_cluster.row(f"offsets-{home}")
    with capsys.disabled():
        print(f"\n  kubectl get offsetspartitions, before: {shown_before}, after: {shown_after}")
        print(f"  longest time without an acknowledged commit: {meter.longest_gap_s(lost_at):.2f} s")


def higher_epoch_led(cluster: MusterCluster, before: dict[int, Partition], index: int) -> bool:
    now = cluster.partitions()[index]
    return now.state == "Led" and now.epoch > before[index].epoch


def group_led_by(leader: str, cluster: MusterCluster) -> str:
    """Name of a group whose coordinator is that pod."""
    led = {index for index, each in cluster.partitions().items() if each.leader == leader}
    names = (f"meter-{number}" for number in range(10_000))
    return next(name for name in names if partition_for(name, OFFSETS_PARTITIONS) in led)


def test_rollout_replaces_one_pod_after_the_other_and_moves_leaders_first(
    muster_cluster: MusterCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {pod.name: pod.uid for pod in muster_cluster.pods()}
    meter = Meter(muster_cluster.bootstrap(), "rollout", TOPIC)
    meter.start()
    wait_until(lambda: meter.count >= 20, "a client commits")
    began_at = time.monotonic()
    patch = '{"spec": {"podTemplate": {"annotations": {"muster.dev/test": "rollout"}}}}'
    name = muster_cluster.objects("coordinatorclusters")[0]["metadata"]["name"]
    muster_cluster.kubectl("patch", "coordinatorcluster", name, "--type=merge", "-p", patch)
    away: list[int] = []
    told: list[str] = []

    def replaced() -> bool:
        pods = {pod.name: pod.uid for pod in muster_cluster.pods()}
        away.append(len(before) - len(pods))
        said = f"{time.monotonic() - began_at:.0f} s: {ready_message(muster_cluster)}"
        if not told or told[-1].partition(": ")[2] != said.partition(": ")[2]:
            told.append(said)
        return len(pods) == len(before) and all(pods[name] != uid for name, uid in before.items())

    try:
        wait_until(replaced, "every pod is another one", timeout_s=ROLLOUT_S)
    finally:
        print("what the cluster said meanwhile:", *told, sep="\n  ")
        print(kubectl("-n", "muster-system", "logs", "deployment/muster-operator", "--since=5m", check=False).stdout)
    muster_cluster.wait_ready()
    wait_until(lambda: all_follow(muster_cluster), "every partition is followed by all of its replicas")
    meter.stop()
    assert meter.error is None
    assert max(away) <= 1
    gap_s = meter.longest_gap_s(began_at)
    with capsys.disabled():
        print(f"\n  rollout of {len(before)} pods: longest time without an acknowledged commit: {gap_s:.2f} s")


def ready_message(cluster: MusterCluster) -> str:
    (found,) = cluster.objects("coordinatorclusters")
    return next(
        f"{each['reason']}: {each['message']}" for each in found["status"]["conditions"] if each["type"] == "Ready"
    )


def all_at_home(cluster: MusterCluster) -> bool:
    """Leaders that a failover moved are back, so that what moves from now on moves because of the test."""
    statuses = [each["status"] for each in cluster.objects("offsetspartitions")]
    return all(status.get("leader") == status["replicas"][0]["pod"] for status in statuses) and all_follow(cluster)


def all_follow(cluster: MusterCluster) -> bool:
    partitions = cluster.objects("offsetspartitions")
    return all(each["status"].get("following") == len(each["status"]["replicas"]) for each in partitions)


def test_operator_lost_clients_are_served_and_nothing_is_elected_again(
    muster_cluster: MusterCluster, members: list[GroupConsumer]
) -> None:
    wait_until(lambda: all_at_home(muster_cluster), "every partition is led by its preferred leader", ROLLOUT_S)
    before = muster_cluster.partitions()
    kubectl("-n", "muster-system", "delete", "pod", "-l", "app.kubernetes.io/name=muster-operator", "--wait=true")
    gone_at = time.monotonic()
    wait_until(lambda: all(each.acknowledged_after(gone_at) for each in members), "members commit without an operator")
    kubectl("-n", "muster-system", "rollout", "status", "deployment/muster-operator", "--timeout=50s")
    muster_cluster.wait_ready()
    assert muster_cluster.partitions() == before


def test_offsets_topic_of_an_unknown_cluster_says_so_in_its_condition(muster_cluster: MusterCluster) -> None:
    manifest = """
    {"apiVersion": "muster.dev/v1alpha1", "kind": "OffsetsTopic", "metadata": {"name": "lost"},
     "spec": {"clusterRef": {"name": "nobody"}, "partitions": 1, "replicationFactor": 1}}
    """
    kubectl("-n", muster_cluster.namespace, "apply", "-f", "-", stdin=manifest)
    try:
        muster_cluster.kubectl(
            *("wait", "offsetstopic/lost", "--for=jsonpath={.status.conditions[?(@.type=='Ready')].status}=False"),
            "--timeout=30s",
        )
        lost = next(each for each in muster_cluster.objects("offsetstopics") if each["metadata"]["name"] == "lost")
        ready = next(each for each in lost["status"]["conditions"] if each["type"] == "Ready")
        assert ready["reason"] == "ClusterNotFound"
        assert "nobody" in ready["message"]
    finally:
        muster_cluster.kubectl("delete", "offsetstopic", "lost")


def test_operator_after_all_of_this_has_not_complained_of_its_watch(muster_cluster: MusterCluster) -> None:
    """The operator also lists now and then, so it would get along without a watch: slowly, and nobody would notice."""
    lines = kubectl("-n", "muster-system", "logs", "deployment/muster-operator").stdout.splitlines()
    assert [line for line in lines if '"watch_failed"' in line or '"kopf"' in line] == []
