"""Transactions where clients log in, use TLS and have ACLs: pods ask one another over their own network (ADR 34)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

pytest.importorskip("cryptography")

from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.local_cluster import LocalCluster

from muster_cli.local.users import set_user

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

GROUPS = [f"g-{number}" for number in range(8)]
CALL_S = 60.0
RIGHTS = [("TRANSACTIONAL_ID", "tx", "WRITE"), ("GROUP", "*", "READ"), ("TOPIC", "*", "READ")]


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What a client of the cluster has to say."""
    server = Authority(tmp_path / "certificates").write("server", member())
    set_user(tmp_path / "users.json", "app", "pencil")
    acls = [{"principal": "User:app", "operation": o, "resource": kind, "name": name} for kind, name, o in RIGHTS]
    (tmp_path / "acls.json").write_text(json.dumps({"acls": acls}))
    settings = (f"muster.listener.tls.dir={server.certificate.parent}", f"muster.acls.file={tmp_path / 'acls.json'}")
    options = [option for setting in settings for option in ("--config", setting)]
    small = ("--partitions", "6", "--transaction-partitions", "2", "--any-topic")
    with LocalCluster(tmp_path / "data", *small, "--tls", "--sasl", str(tmp_path / "users.json"), *options) as cluster:
        yield {
            "bootstrap.servers": cluster.wait_ready(),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(server.authorities),
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": "pencil",
        }


def committed(clients: dict[str, Any], group: str) -> int:
    consumer = Consumer(clients | {"group.id": group})
    (found,) = consumer.committed([TopicPartition("t", 0)], CALL_S)
    consumer.close()
    offset: int = found.offset
    return offset


def test_transactions_reach_groups_on_all_pods_though_clients_have_to_log_in(clients: dict[str, Any]) -> None:
    """The groups' pods ask the coordinator, and it sends them markers; the user may not do either."""
    producer = Producer(clients | {"transactional.id": "tx"})
    consumers = {group: Consumer(clients | {"group.id": group}) for group in GROUPS}
    producer.init_transactions(CALL_S)
    for offset, commits in ((10, True), (20, False), (30, True)):
        producer.begin_transaction()
        for consumer in consumers.values():
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], metadata, CALL_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(CALL_S)
        expected = offset if commits else 10
        assert {group: committed(clients, group) for group in GROUPS} == dict.fromkeys(GROUPS, expected)
    for consumer in consumers.values():
        consumer.close()


def test_producer_without_the_right_to_its_transactional_id_is_refused(clients: dict[str, Any]) -> None:
    stranger = Producer(clients | {"transactional.id": "other"})
    with pytest.raises(KafkaException, match="Transactional Id authorization failed"):
        stranger.init_transactions(CALL_S)
