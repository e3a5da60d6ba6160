"""What a person on call asks of a running instance: status, explain, groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.local_cluster import LocalCluster, muster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_groups_of_a_running_instance_are_listed_described_and_explained(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, "--pods", "1", "--partitions", "4", "--topic", "orders:3") as cluster:
        bootstrap = cluster.wait_ready()
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "client.id": "one"})
        try:
            consumer.subscribe(["orders"])
            while not consumer.assignment():
                consumer.poll(0.1)
            consumer.commit(offsets=[TopicPartition("orders", 0, 42)], asynchronous=False)
            here = ("--data-dir", str(tmp_path))
            assert muster("status", *here).returncode == 0
            (line,) = json.loads(muster("groups", "list", *here, "--json").stdout)
            assert line == {"group": "billing", "state": "STABLE", "type": "CLASSIC"}
            told = json.loads(muster("groups", "describe", "billing", *here, "--json").stdout)
            (member,) = told["members"]
            assert (member["client_id"], len(member["assigned"])) == ("one", 3)
            offsets = [(each["partition"], each["offset"], each["client_id"]) for each in told["positions"]]
            assert offsets == [(0, 42, "one"), (1, None, "one"), (2, None, "one")]
            (explained,) = json.loads(muster("explain", "billing", *here, "--json").stdout)
            assert (explained["leader"], explained["kafka_name"]) == ("muster-0", "__consumer_offsets-1")
            nobody = muster("groups", "describe", "nobody", *here)
            assert (nobody.returncode, "no group nobody" in nobody.stderr) == (1, True)
        finally:
            consumer.close()
