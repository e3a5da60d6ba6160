"""Alerts of logs and of what is kept of them, as in test_alerts.py: volumes that are copied, damaged and full, an
update that has to be rolled back, a pod that hangs while a transaction ends, backups that are not made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hack import kubernetes_machine as machine
from hack.alerts import TRIED_ON_LOGS
from tests.kubernetes.test_alerts import fill, frozen, no_node_for_new_pods, pods_by_name, volume
from tests.support.kube import as_list, install_operator, kubectl
from tests.support.muster_cluster import Pod, process_of, wait_until
from tests.support.on_call import OnCall
from tests.support.platform_team import READY_S, TOPIC, Cared, Load, cared_for, nothing_is_lost
from tests.support.prometheus import running_prometheus

from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.records.partitioner import partition_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME = "muster-alerts-on-logs", "kept"
SECONDS_OF_A_MINUTE = 1
PARTITIONS = {"__consumer_offsets": 6, "__transaction_state": 3}
DATA = "data"
"""The data directory of a pod, in its volume."""
CALL_S = 30.0
LOADS_FAIL, FAILED = "MusterLoadsFail", "MusterPartitionFailed"
TOO_OLD, NOT_MADE, CHANGED = "MusterBackupTooOld", "MusterBackupFailed", "MusterBackupVerifyFailed"
STORE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "backups"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "limited",
        "resources": {"requests": {"storage": "16Mi"}},
    },
}


@pytest.fixture(scope="module")
def later_image() -> str:
    image = os.environ.get("MUSTER_TEST_LATER_IMAGE")
    if image is None:
        pytest.skip("no image of a later Muster: hack/image build later")
    return image


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    if machine.has_kind():
        pytest.skip("the volumes of kind are inside its container")
    install_operator()
    limited = {"size": "64Mi", "storageClassName": "limited"}
    settings = {"offsets.topic.segment.bytes": "16384"}
    storage = {**limited, "archive": limited}
    with cared_for(NAMESPACE, NAME, pods=3, partitions=6, storage=storage, settings=settings, anyTopic=True) as made:
        spec = {"clusterRef": {"name": NAME}, "topic": "__transaction_state", "partitions": 3, "replicationFactor": 3}
        topic = {"kind": "OffsetsTopic", "metadata": {"name": "transactions"}, "spec": spec}
        apply({"apiVersion": "muster.dev/v1alpha1", **topic}, STORE)
        made.wait_whole()
        yield made


def apply(*objects: dict[str, object]) -> None:
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=as_list(objects))


@pytest.fixture(scope="module")
def on_call(cluster: Cared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), SECONDS_OF_A_MINUTE) as prometheus:

        def is_scraped() -> bool:
            return len(prometheus.query(f'up{{namespace="{NAMESPACE}"}} == 1')) == 3

        wait_until(is_scraped, "three pods are scraped")
        yield OnCall(prometheus, {NAMESPACE})


def claimed(cluster: Cared, claim: str) -> Path:
    """The directory that is the volume of a claim, as processes of the node see it that have it mounted."""
    (found,) = (each for each in cluster.objects("persistentvolumeclaims") if each["metadata"]["name"] == claim)
    path = "jsonpath={.spec.hostPath.path}"
    place = kubectl("get", "persistentvolume", found["spec"]["volumeName"], "-o", path).stdout
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if f" {place} " in (process / "mountinfo").read_text():
                return process / "root" / place.removeprefix("/")
    raise AssertionError(f"{place} is mounted nowhere")


def emptied(directory: Path) -> None:
    for each in directory.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@contextmanager
def stopped(cluster: Cared, pod: Pod) -> Iterator[Path]:
    """Its volume, while the pod is stopped: it has ended in order, and the next one of its name finds no node."""
    with no_node_for_new_pods():
        cluster.delete(pod)
        wait_until(lambda: cluster.replaced(pod), "the pod has ended")
        yield claimed(cluster, f"data-{pod.name}")


def leaders(cluster: Cared, topic: str) -> dict[int, str]:
    """The pod that leads each partition, by its number."""
    found = (each for each in cluster.objects("offsetspartitions") if each["spec"]["topicRef"]["name"] == topic)
    return {each["spec"]["index"]: each["status"]["leader"] for each in found}


def named(prefix: str, topic: str, partition: int) -> str:
    """A group or transactional id of this partition."""
    names = (f"{prefix}-{number}" for number in count())
    return next(each for each in names if partition_for(each, PARTITIONS[topic]) == partition)


def name_led_by(cluster: Cared, prefix: str, pod: str) -> str:
    """A group that this pod coordinates."""
    led = leaders(cluster, NAME)
    return named(prefix, "__consumer_offsets", next(index for index, leader in led.items() if leader == pod))


def consumer(cluster: Cared, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap(), "group.id": group, "enable.auto.commit": False})


def write(cluster: Cared, group: str, commits: int = 4) -> None:
    """About a segment with each commit, and less than a checkpoint with all of them."""
    client = consumer(cluster, group)
    for position in range(commits):
        client.commit(offsets=[TopicPartition("any", number, position) for number in range(250)], asynchronous=False)
    client.close()


def one_replica_each(cluster: Cared) -> None:
    """From here on no other pod leads what the pod of a partition does not."""
    for topic in (NAME, "transactions"):
        body = json.dumps({"spec": {"replicationFactor": 1}})
        cluster.kubectl("patch", "offsetstopic", topic, "--type=merge", "-p", body)
    cluster.wait_whole()
    cluster.wait_at_home()


def test_volume_that_is_a_copy_of_another_one(cluster: Cared, on_call: OnCall) -> None:
    """A snapshot that was restored into the wrong claim; put right as docs/failures.md says."""
    alert = "MusterReplicasDoubled"
    acknowledged = Load.begin(cluster, "copied").end()
    _, original, other = pods_by_name(cluster)
    with stopped(cluster, other) as copy:
        emptied(copy)
        subprocess.run(["cp", "-a", f"{volume(original)}/.", str(copy)], check=True)
    said = on_call.looks(alert, on_call.sees(alert))
    assert f"{original.name}, {other.name} have a log with the same id" in said
    with stopped(cluster, cluster.pod(other.name)) as copy:
        for topic in PARTITIONS:
            for each in (copy / DATA).glob(f"{topic}-*"):
                shutil.rmtree(each)
    cluster.wait_whole()
    on_call.sees_it_go_out(alert)
    nothing_is_lost(cluster, acknowledged)


def test_archive_without_room(cluster: Cared, on_call: OnCall) -> None:
    one_replica_each(cluster)
    alert = "MusterArchiveBehind"
    pod = pods_by_name(cluster)[0]
    fill(volume(pod, "muster-archive"))
    write(cluster, name_led_by(cluster, "archived", pod.name))
    said = on_call.looks(alert, on_call.sees(alert, pod=pod.name))
    assert "segment_not_archived" in said
    assert "100%" in said
    cluster.patch(storage={"archive": {"size": "80Mi"}})
    on_call.sees_it_go_out(alert)


def test_pod_that_hangs_while_a_transaction_ends(cluster: Cared, on_call: OnCall) -> None:
    """It leads a group's partition, which has no leader then: there is nobody to send the marker to again."""
    one_replica_each(cluster)
    alert = "MusterTransactionsHang"
    coordinator = leaders(cluster, "transactions")[TRANSACTIONS.first]
    hung = next(each for each in pods_by_name(cluster) if each.name != coordinator)
    group = name_led_by(cluster, "exactly-once", hung.name)
    partition = partition_for(group, PARTITIONS["__consumer_offsets"])
    reader = consumer(cluster, group)
    name = named("tx", "__transaction_state", 0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap(), "transactional.id": name})
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 7)], reader.consumer_group_metadata(), CALL_S)
    with frozen([process_of(hung.uid)]):
        producer.commit_transaction(CALL_S)
        said = on_call.looks(alert, on_call.sees(alert, pod=coordinator))
        (shown,) = (line for line in said.splitlines() if line.startswith(f"{NAME}-{partition} "))
        assert "Leaderless" in shown
        assert hung.name in shown

        def names_who_gives_no_answer() -> bool:
            """Ten seconds after the question, which pass before the alert fires where a minute is one."""
            said = on_call.looks(alert, on_call.sees(alert, pod=coordinator))
            return any("pod_gave_no_answer" in line and hung.name in line for line in said.splitlines())

        wait_until(names_who_gives_no_answer, "the log names the pod")
    on_call.sees_it_go_out(alert)
    (found,) = reader.committed([TopicPartition(TOPIC, 0)], CALL_S)
    assert found.offset == 7
    reader.close()


def back_up(cluster: Cared, name: str, reason: str, *, verify: bool = False) -> None:
    """Ask for a backup, and wait until it says this."""
    spec = {"clusterRef": {"name": NAME}, "verify": verify}
    apply({"apiVersion": "muster.dev/v1alpha1", "kind": "MusterBackup", "metadata": {"name": name}, "spec": spec})

    def ended() -> bool:
        (found,) = (each for each in cluster.objects("musterbackups") if each["metadata"]["name"] == name)
        return [each["reason"] for each in found.get("status", {}).get("conditions", ())] == [reason]

    wait_until(ended, f"the backup says {reason}", READY_S)


def test_backups_that_nobody_makes_that_fail_and_that_change(cluster: Cared, on_call: OnCall) -> None:
    cluster.patch(backup={"store": {"claim": "backups"}, "maxAge": "1s"})
    back_up(cluster, "first", "BackedUp")
    said = on_call.looks(TOO_OLD, on_call.sees(TOO_OLD, cluster=NAME))
    assert "the newest backup is of" in said
    cluster.patch(backup={"maxAge": "1h"})
    on_call.sees_it_go_out(TOO_OLD)

    store = claimed(cluster, "backups")
    fill(store)
    write(cluster, "backed-up")
    back_up(cluster, "refused", "BackupFailed")
    said = on_call.looks(NOT_MADE, on_call.sees(NOT_MADE, cluster=NAME))
    assert "No space left on device" in said
    (store / "filler").unlink()
    back_up(cluster, "second", "BackedUp")
    on_call.sees_it_go_out(NOT_MADE)

    segment = max((each for each in store.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size)
    flip_a_bit(segment)
    back_up(cluster, "read-again", "BackupDamaged", verify=True)
    said = on_call.looks(CHANGED, on_call.sees(CHANGED, cluster=NAME))
    assert segment.name in said
    segment.unlink()
    back_up(cluster, "third", "BackedUp", verify=True)
    on_call.sees_it_go_out(CHANGED)


def flip_a_bit(file: Path) -> None:
    with file.open("r+b") as bits:
        bits.seek(file.stat().st_size // 2)
        (byte,) = bits.read(1)
        bits.seek(-1, os.SEEK_CUR)
        bits.write(bytes([byte ^ 1]))


def test_bit_that_a_disk_has_flipped(cluster: Cared, on_call: OnCall) -> None:
    """In a closed segment, of which the journal has no copy any more; put right as docs/failures.md says."""
    alert = "MusterReplicaDamaged"
    pod = pods_by_name(cluster)[1]
    group = name_led_by(cluster, "damaged", pod.name)
    write(cluster, group)
    partition = f"__consumer_offsets-{partition_for(group, PARTITIONS['__consumer_offsets'])}"
    with stopped(cluster, pod) as directory:
        segment = sorted((directory / DATA / partition).glob("*.log"))[-2]
        flip_a_bit(segment)
    said = on_call.looks(alert, on_call.sees(alert, pod=pod.name))
    assert segment.name in said
    with stopped(cluster, cluster.pod(pod.name)) as directory:
        flip_a_bit(directory / DATA / partition / segment.name)
        shutil.rmtree(directory / DATA / partition / "damaged")
    cluster.wait_whole()
    on_call.sees_it_go_out(alert)
    client = consumer(cluster, group)
    found = client.committed([TopicPartition("any", number) for number in range(250)], CALL_S)
    assert {each.offset for each in found} == {3}
    client.close()


def test_update_with_a_defect_that_is_rolled_back(cluster: Cared, on_call: OnCall, later_image: str) -> None:
    """What the later version has written only a later version can load: the way out is forwards."""
    one_replica_each(cluster)
    defect, pod = "MusterOperationErrors", pods_by_name(cluster)[2]
    cluster.patch(image=later_image)
    cluster.wait_whole()
    name_of_defect = name_led_by(cluster, "unlucky", pod.name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def fires_when_it_is_described() -> bool:
        """Again and again: who begins to look when it has happened sees nothing happen."""
        described = admin.describe_consumer_groups([name_of_defect])[name_of_defect]
        return described.exception() is not None and bool(on_call.saw(defect))

    wait_until(fires_when_it_is_described, f"{defect} fires")
    said = on_call.looks(defect, on_call.sees(defect, pod=pod.name))
    assert "DescribeGroupRequest" in said
    on_call.sees_it_go_out(defect)

    group = name_led_by(cluster, "later", pod.name)
    write(cluster, group, 1)
    cluster.patch(image=machine.MUSTER_IMAGE)
    found = on_call.sees(LOADS_FAIL, pod=pod.name)
    said = on_call.looks(LOADS_FAIL, found)
    number = partition_for(group, PARTITIONS["__consumer_offsets"])
    assert f"of __consumer_offsets-{number}: OffsetCommitValue version 5 is not supported" in said
    said = on_call.looks(FAILED, on_call.sees(FAILED, pod=pod.name))
    assert "OffsetCommitValue version 5 is not supported" in said
    cluster.patch(image=later_image)
    cluster.wait_whole()
    on_call.sees_it_go_out(LOADS_FAIL)
    on_call.sees_it_go_out(FAILED)


def test_all_are_out_in_the_end(on_call: OnCall) -> None:
    for alert in sorted(on_call.fired):
        on_call.sees_it_go_out(alert)
    assert on_call.fired == {*TRIED_ON_LOGS}, "the runbook names these"
