"""`muster local up` and `muster local status`: real processes, real Kafka clients."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.local_cluster import LocalCluster, alive, muster, wait_until

from muster_cli.local.users import set_user

pytestmark = pytest.mark.integration

SMALL = ("--pods", "2", "--partitions", "4", "--transaction-partitions", "0", "--topic", "orders:3")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", *SMALL) as cluster:
        yield cluster


def client(bootstrap: str, group: str = "billing") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def commit(bootstrap: str, offset: int) -> None:
    consumer = client(bootstrap)
    answer = consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    assert [(each.offset, each.error) for each in answer] == [(offset, None)]
    consumer.close()


def committed(bootstrap: str) -> int:
    consumer = client(bootstrap)
    [answer] = consumer.committed([TopicPartition("orders", 0)], timeout=30)
    consumer.close()
    return int(answer.offset)


def pids(cluster: LocalCluster) -> dict[str, int]:
    return {pod["name"]: pod["pid"] for pod in cluster.status()["pods"]}


def test_ready_cluster_shows_every_partition_led_and_every_pod_alive(cluster: LocalCluster) -> None:
    bootstrap = cluster.wait_ready()
    status = cluster.status()
    assert status["bootstrap"] == bootstrap
    assert [(pod["name"], pod["alive"]) for pod in status["pods"]] == [("muster-0", True), ("muster-1", True)]
    assert ",".join(pod["kafka_address"] for pod in status["pods"]) == bootstrap
    assert [line["partition"] for line in status["partitions"]] == [0, 1, 2, 3]
    for line in status["partitions"]:
        assert line["state"] == "Led"
        assert line["replicas"] == [line["leader"]]
    tables = muster("local", "status", "--data-dir", str(cluster.data))
    assert tables.returncode == 0
    assert "4 of 4 partitions have a leader" in tables.stdout


def test_ctrl_c_stops_every_pod_and_the_next_run_finds_the_offsets(cluster: LocalCluster, tmp_path: Path) -> None:
    commit(cluster.wait_ready(), 42)
    before = {line["partition"]: line["epoch"] for line in cluster.status()["partitions"]}
    running = pids(cluster)
    assert cluster.stop(signal.SIGINT) == 0
    assert not any(alive(pid) for pid in running.values())
    gone = muster("local", "status", "--data-dir", str(cluster.data))
    assert gone.returncode == 1
    assert "nothing runs on" in gone.stderr

    # Neither --pods nor --partitions: both are the directory's.
    with LocalCluster(tmp_path / "data", "--any-topic") as again:
        assert committed(again.wait_ready()) == 42
        status = again.status()
        assert len(status["pods"]) == 2
        assert all(line["epoch"] > before[line["partition"]] for line in status["partitions"])
        assert again.stop() == 0


def test_killed_pod_comes_back_under_a_higher_epoch_with_its_offsets(cluster: LocalCluster) -> None:
    bootstrap = cluster.wait_ready()
    commit(bootstrap, 7)
    before = cluster.status()
    for pod in before["pods"]:
        os.kill(pod["pid"], signal.SIGKILL)
        cluster.wait_line(f"{pod['name']} was ended by SIGKILL")
        cluster.wait_line("all 4 partitions have a leader again")
    after = cluster.status()
    assert all(pod["alive"] for pod in after["pods"])
    assert not {pod["pid"] for pod in before["pods"]} & {pod["pid"] for pod in after["pods"]}
    assert [line["epoch"] for line in after["partitions"]] == [line["epoch"] + 1 for line in before["partitions"]]
    assert committed(bootstrap) == 7


def test_second_up_on_the_same_directory_is_refused_while_the_first_one_runs(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    second = muster("local", "up", "--data-dir", str(cluster.data), "--base-port", "0")
    assert second.returncode == 1
    assert f"(pid {cluster.child.pid})" in second.stderr
    assert all(pod["alive"] for pod in cluster.status()["pods"])


def test_pods_of_a_killed_supervisor_serve_on_until_the_next_up_replaces_them(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    bootstrap = cluster.wait_ready()
    left = pids(cluster)
    cluster.child.kill()
    cluster.child.wait()
    commit(bootstrap, 13)
    warned = muster("local", "status", "--data-dir", str(cluster.data))
    assert (warned.returncode, "is gone" in warned.stderr) == (0, True)

    with LocalCluster(tmp_path / "data", "--topic", "orders:3") as next_run:
        next_run.wait_line("stopping pods that an earlier run left behind: muster-0, muster-1")
        assert committed(next_run.wait_ready()) == 13
        assert not any(alive(pid) for pid in left.values())
        assert next_run.stop() == 0


def test_pod_that_hangs_at_stop_is_killed_at_the_second_signal(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    running = pids(cluster)
    os.kill(running["muster-1"], signal.SIGSTOP)
    cluster.child.send_signal(signal.SIGINT)
    cluster.wait_line("stopping")
    wait_until(lambda: not alive(running["muster-0"]), "muster-0 ended")
    assert cluster.stop(signal.SIGINT) == 0
    assert not alive(running["muster-1"])


def test_port_in_use_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = muster("local", "up", "--data-dir", str(tmp_path), "--pods", "1", "--base-port", str(port))
    assert done.returncode == 1
    assert f"already in use on 127.0.0.1: {port}" in done.stderr
    assert not any((tmp_path / "logs").iterdir())


def test_other_number_of_partitions_on_a_used_directory_is_refused(cluster: LocalCluster) -> None:
    cluster.wait_ready()
    cluster.stop()
    done = muster("local", "up", "--data-dir", str(cluster.data), "--base-port", "0", "--partitions", "5")
    assert done.returncode == 2
    assert "has 4 partitions" in done.stderr


def test_partition_with_a_damaged_log_is_stalled_says_why_and_the_others_go_on(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    bootstrap = cluster.wait_ready()
    for offset in range(20):
        commit(bootstrap, offset)
    assert cluster.stop() == 0
    segments = (tmp_path / "data" / "pods").glob("*/__consumer_offsets-*/*.log")
    largest = max(segments, key=lambda segment: segment.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)

    with LocalCluster(tmp_path / "data", "--topic", "orders:3") as again:
        line = again.wait_line("partition ")
        assert "is stalled" in line
        assert str(largest) in line
        wait_until(lambda: sum(p["state"] == "Led" for p in again.status()["partitions"]) == 3, "the others are led")
        shown = muster("local", "status", "--data-dir", str(again.data))
        assert str(largest) in shown.stdout
        assert again.stop() == 0


def test_clients_log_in_where_users_are_given(tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    set_user(users, "alice", "pencil")
    with LocalCluster(tmp_path / "data", *SMALL, "--sasl", str(users)) as cluster:
        bootstrap = cluster.wait_ready()

        def consumer(password: str) -> Consumer:
            login = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": password}
            return Consumer(
                {"bootstrap.servers": bootstrap, "group.id": "billing", "security.protocol": "SASL_PLAINTEXT", **login}
            )

        alice = consumer("pencil")
        alice.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        assert alice.committed([TopicPartition("orders", 0)], timeout=30)[0].offset == 7
        alice.close()
        stranger = consumer("crayon")
        with pytest.raises(KafkaException):
            stranger.committed([TopicPartition("orders", 0)], timeout=3)
        stranger.close()
