"""Alerts of mirror and gateway, as in test_alerts.py: before a Kafka cluster whose door asks for TLS and logins."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from hack.alerts import TRIED_BEFORE_KAFKA
from tests.kubernetes.test_alerts import frozen, no_node_for_new_pods
from tests.kubernetes.test_gateway import PARTITIONS, READY_S, kafka_image
from tests.kubernetes.test_moving_groups_on_kubernetes import Moving
from tests.kubernetes.test_secured_gateway import PASSWORDS, Locked, door, locked_out
from tests.support.certificates import Authority
from tests.support.kube_kafka import KafkaPods
from tests.support.muster_cluster import process_with, wait_until
from tests.support.on_call import OnCall
from tests.support.prometheus import running_prometheus
from tests.support.record_load import RecordLoad

from muster_cli.demo.meter import Meter

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME = "muster-alerts-front", "guarded"
SECONDS_OF_A_MINUTE = 2
CUT_OFF, WAIT = "MusterGatewayCutOff", "MusterGatewayRequestsWait"
STOPPED, WRITE_BACK = "MusterMirrorStopped", "MusterWriteBackStopped"


class Front(Locked, Moving):
    """Groups that begin with m- are Muster's, those that begin with k- can move there."""

    movable = True

    @property
    def broker(self) -> int:
        """The process of this machine."""
        return process_with("POD_IP", self.kafka.bootstrap.partition(":")[0])

    def upstream(self) -> dict[str, Any]:
        return {**Locked.upstream(self), "movableGroups": ["k-"]}

    def commit_at_kafka(self, group: str) -> None:
        """Commit an offset at the broker's own address, past the gateway."""
        where = {"bootstrap.servers": self.kafka.bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer(where)
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()

    @contextmanager
    def committing_at_kafka(self, group: str) -> Iterator[None]:
        """Commit there all the time: a counter's first sample of a pod that has just begun shows no increase."""
        stop = Event()

        def commit() -> None:
            while not stop.wait(1):
                self.commit_at_kafka(group)

        with ThreadPoolExecutor(1) as beside:
            commits = beside.submit(commit)
            try:
                yield
            finally:
                stop.set()
        commits.result()


@pytest.fixture(scope="module")
def front(custom_resources: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Its account at Kafka has a wrong password at first."""
    image = kafka_image()
    authority = Authority(tmp_path_factory.mktemp("certificates")).issued
    kafka = KafkaPods(NAMESPACE, image, PARTITIONS, door(authority))
    cluster = Front(kafka, authority, NAMESPACE, NAME)
    with locked_out(cluster, replicas=1):
        yield cluster


@pytest.fixture(scope="module")
def on_call(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), SECONDS_OF_A_MINUTE) as prometheus:

        def is_scraped() -> bool:
            found = prometheus.query(f'up{{namespace="{NAMESPACE}"}} == 1')
            return len({each["metric"]["pod"] for each in found}) == 2

        wait_until(is_scraped, "a pod and a gateway are scraped", READY_S)
        yield OnCall(prometheus, {NAMESPACE})


def test_login_that_is_refused(front: Front, on_call: OnCall) -> None:
    alert = "MusterUpstreamRefusesLogin"
    found = on_call.sees(alert, reason="login")
    on_call.looks(alert, found)
    front.put_password(PASSWORDS["muster"])
    on_call.sees_it_go_out(alert)
    wait_until(lambda: front.condition("Mirrored") == ("True", "UpstreamFollowed"), "Kafka is followed", READY_S)
    front.wait_ready(READY_S)


def test_broker_that_does_not_answer(front: Front, on_call: OnCall) -> None:
    """A group that has moved to Muster goes on meanwhile."""
    front.commit_at_kafka("k-moved")
    front.declare_group("k-moved", "Muster")
    front.wait_for_reason("k-moved", "AtMuster")
    meter = Meter(front.bootstrap(), "k-moved", "orders")
    meter.start()
    with frozen([front.broker]):
        on_call.looks(CUT_OFF, on_call.sees(CUT_OFF, cluster="upstream"))
        found = {alert: on_call.sees(alert) for alert in (STOPPED, WRITE_BACK)}
        # minutes are seconds here: the alert is faster than the operator, which does not write conditions all the time
        wait_until(lambda: front.condition("Mirrored") == ("False", "UpstreamNotFollowed"), "it is told", READY_S)
        said = {alert: on_call.looks(alert, labels) for alert, labels in found.items()}
        before = meter.count
        wait_until(lambda: meter.count > before, "commits of the group are acknowledged")
    assert "UpstreamNotFollowed" in said[STOPPED]
    assert "write_back_problem" in said[WRITE_BACK]
    for alert in (CUT_OFF, STOPPED, WRITE_BACK):
        on_call.sees_it_go_out(alert)
    meter.stop()
    assert meter.error is None


def test_gateway_without_pods(front: Front, on_call: OnCall, tmp_path: Path) -> None:
    with RecordLoad(front.gateway_bootstrap(), "orders", "m-orders", front.client(tmp_path)) as load:
        load.wait_received(100)
        (pod,) = front.pods()
        with no_node_for_new_pods():
            front.delete(pod)
            wait_until(lambda: front.replaced(pod), "another pod waits for a node", READY_S)
            on_call.looks(CUT_OFF, on_call.sees(CUT_OFF, cluster="muster"))
            on_call.looks(WAIT, on_call.sees(WAIT))
        for alert in (CUT_OFF, WAIT):
            on_call.sees_it_go_out(alert)
        load.goes_on(100)


def test_client_that_goes_past_the_gateway(front: Front, on_call: OnCall) -> None:
    alert = "MusterMirrorBypassed"
    with front.committing_at_kafka("m-past"):
        on_call.looks(alert, on_call.sees(alert))
    on_call.sees_it_go_out(alert)


def test_all_are_out_in_the_end(on_call: OnCall) -> None:
    for alert in sorted(on_call.fired):
        on_call.sees_it_go_out(alert)
    assert on_call.fired == {*TRIED_BEFORE_KAFKA}, "the runbook names these"
