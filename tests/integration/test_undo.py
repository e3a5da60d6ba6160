"""Groups get the offsets back that they had at a moment: `muster groups undo` and `offsets`, on a running cluster."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.local_cluster import LocalCluster, muster, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SHAPE = ("--pods", "1", "--partitions", "4", "--transaction-partitions", "2", "--topic", "orders:4")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", *SHAPE) as cluster:
        cluster.bootstrap = cluster.wait_ready()  # type: ignore[attr-defined]
        yield cluster


def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})  # type: ignore[attr-defined]


def commit(cluster: LocalCluster, group: str, offset: int, metadata: str = "") -> None:
    beside = {"metadata": metadata} if metadata else {}
    places = [TopicPartition("orders", number, offset + number, **beside) for number in range(3)]
    client = admin(cluster)  # it has to live until it is answered
    client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(30)


def commit_in_transaction(cluster: LocalCluster, group: str, offset: int, *, commits: bool) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap}  # type: ignore[attr-defined]
    producer = Producer({**servers, "transactional.id": f"tx-{group}"})
    consumer = Consumer({**servers, "group.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    place = TopicPartition("orders", 0, offset)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    consumer.close()


def committed(cluster: LocalCluster, group: str) -> dict[int, tuple[int, str]]:
    client = admin(cluster)
    told = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30).topic_partitions
    return {each.partition: (each.offset, each.metadata or "") for each in told if each.offset >= 0}


def back_up(cluster: LocalCluster, store: Path) -> str:
    done = muster("backup", "create", "--data-dir", str(cluster.data), "--store", str(store), "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def moment() -> str:
    """Now, with a second on each side in which nothing is committed: batches have whole milliseconds."""
    time.sleep(0.05)
    found = time.time()
    time.sleep(0.05)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found)) + f".{int(found % 1 * 1000):03}Z"


def undo(cluster: LocalCluster, store: Path, *more: str) -> tuple[int, dict[str, str]]:
    """Returns the exit code and the outcome of each group."""
    done = muster("groups", "undo", "--store", str(store), "--data-dir", str(cluster.data), "--json", *more)
    assert done.stdout, done.stderr
    return done.returncode, {each["group"]: each["outcome"] for each in json.loads(done.stdout)["groups"]}


def test_wrong_reset_is_undone_to_a_cut_and_to_a_moment(cluster: LocalCluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit(cluster, "billing", 100, "by hand")
    commit(cluster, "other", 7)
    commit_in_transaction(cluster, "exact", 50, commits=True)
    cut = back_up(cluster, store)
    commit(cluster, "billing", 200)
    commit_in_transaction(cluster, "exact", 60, commits=True)
    commit_in_transaction(cluster, "exact", 70, commits=False)
    at = moment()
    for group in ("billing", "exact"):
        commit(cluster, group, 0)
    back_up(cluster, store)

    code, outcomes = undo(cluster, store, "--all", "--at", at, "--dry-run")
    assert (code, outcomes) == (0, {"billing": "to write", "exact": "to write", "other": "same"})
    assert committed(cluster, "billing")[0][0] == 0, "nothing is written by a dry run"
    code, outcomes = undo(cluster, store, "--all", "--at", at, "--yes")
    assert (code, outcomes) == (0, {"billing": "written", "exact": "written", "other": "same"})
    assert committed(cluster, "billing") == {number: (200 + number, "") for number in range(3)}
    assert committed(cluster, "exact") == {0: (60, ""), 1: (1, ""), 2: (2, "")}, "others had no offset then"

    code, outcomes = undo(cluster, store, "billing", "--backup", cut, "--yes")
    assert (code, outcomes) == (0, {"billing": "written"})
    assert committed(cluster, "billing") == {number: (100 + number, "by hand") for number in range(3)}
    assert undo(cluster, store, "billing", "--backup", cut, "--yes") == (0, {"billing": "same"})


def test_lost_cluster_is_restored_and_gets_the_offsets_of_a_moment_between_two_backups(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The later backup is restored, mistake and all; then the offsets of the moment are written."""
    store, target = tmp_path / "store", tmp_path / "restored"
    commit(cluster, "billing", 100)
    commit_in_transaction(cluster, "exact", 50, commits=True)
    back_up(cluster, store)
    commit(cluster, "billing", 200)
    commit_in_transaction(cluster, "exact", 60, commits=True)
    at = moment()
    for group in ("billing", "exact"):
        commit(cluster, group, 0)
    back_up(cluster, store)
    assert cluster.stop() == 0
    shutil.rmtree(cluster.data)
    done = muster("restore", "--store", str(store), "--data-dir", str(target))
    assert done.returncode == 0, done.stderr

    with LocalCluster(target, "--topic", "orders:4") as again:
        again.bootstrap = again.wait_ready()  # type: ignore[attr-defined]
        assert committed(again, "billing")[0] == (0, "")
        code, outcomes = undo(again, store, "--all", "--at", at, "--yes")
        assert (code, outcomes) == (0, {"billing": "written", "exact": "written"})
        assert committed(again, "billing") == {number: (200 + number, "") for number in range(3)}
        assert committed(again, "exact")[0] == (60, "")


def test_group_with_members_is_left_as_it_is(cluster: LocalCluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit(cluster, "live", 10)
    commit(cluster, "empty", 10)
    back_up(cluster, store)
    for group in ("live", "empty"):
        commit(cluster, group, 20)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "live"})  # type: ignore[attr-defined]
    consumer.subscribe(["orders"])
    try:
        wait_until(lambda: bool(consumer.poll(0.1) or consumer.assignment()), "it has joined")
        code, outcomes = undo(cluster, store, "live", "empty", "--yes")
        assert (code, outcomes) == (1, {"live": "members", "empty": "written"})
        assert committed(cluster, "live")[0] == (20, "")
    finally:
        consumer.close()
    assert undo(cluster, store, "live", "--yes") == (0, {"live": "written"})
    assert committed(cluster, "live")[0] == (10, "")


def test_what_cannot_be_is_said(cluster: LocalCluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit(cluster, "a", 1)
    commit(cluster, "b", 2)
    back_up(cluster, store)

    def refused(*arguments: str) -> str:
        done = muster("groups", *arguments, "--store", str(store))
        assert done.returncode in (1, 2)
        return done.stderr

    where = ("--data-dir", str(cluster.data))
    assert "nothing was committed for nobody" in refused("offsets", "nobody")
    assert "run `muster backup create`" in refused("offsets", "a", "--at", moment())
    assert "no time as" in refused("offsets", "a", "--at", "yesterday")
    assert "give one of --backup and --at" in refused("offsets", "a", "--at", "2026-01-01", "--backup", "latest")
    assert "name groups, or give --all" in refused("undo", *where)
    assert "give --yes or --dry-run" in refused("undo", "a", *where)

    told = muster("groups", "offsets", "--csv", "--store", str(store)).stdout.splitlines()
    assert told == [
        f"{group},orders,{number},{first + number}" for group, first in (("a", 1), ("b", 2)) for number in range(3)
    ]
    assert muster("groups", "offsets", "a", "--csv", "--store", str(store)).stdout.splitlines()[0] == "orders,0,1"
    printed = yaml.safe_load(muster("groups", "offsets", "a", "--as-reset", "one", "--store", str(store)).stdout)
    assert printed["reset"]["offsets"][0] == {"topic": "orders", "partition": 0, "offset": 1}
    assert "needs one group" in refused("offsets", "a", "b", "--as-reset", "one")
    shown = json.loads(muster("groups", "offsets", "a", "--json", "--store", str(store)).stdout)
    assert shown["groups"]["a"][2] == {
        "topic": "orders",
        "partition": 2,
        "offset": 3,
        "metadata": "",
        "leader_epoch": -1,
    }
