"""Unchanged clients through the gateway: records from a real Kafka of three brokers, groups at Muster."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.support.aiokafka_round import aiokafka_round
from tests.support.gateway import GatewayProcess
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import group_command, run_tool, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_python import METADATA
from tests.support.local_cluster import LocalCluster, alive, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(300),
]

TOPIC, PARTITIONS = "orders", 6
AT_MUSTER, AT_KAFKA = "m-", "k-"
DEADLINE_S = 60.0
METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


class Site:
    """A Kafka cluster, a Muster cluster, and a gateway in front of both."""

    def __init__(self, kafka: KafkaCluster, muster: LocalCluster, gateway: GatewayProcess) -> None:
        self.kafka = kafka
        self.muster = muster
        self.gateway = gateway

    @property
    def bootstrap(self) -> str:
        return self.gateway.bootstrap


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("muster")
    options = ["--config", "group.initial.rebalance.delay.ms=100", "--partitions", "5", "--any-topic"]
    with LocalCluster(data, *options) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kafka(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KafkaCluster]:
    async with KafkaCluster(tmp_path_factory.mktemp("kafka"), {TOPIC: PARTITIONS}) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    kafka: KafkaCluster, muster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    bootstrap = await asyncio.to_thread(muster.wait_ready)
    directory = tmp_path_factory.mktemp("gateway")
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            GatewayProcess(directory, kafka.bootstrap, bootstrap, {"muster.groups": AT_MUSTER})
        )
        yield Site(kafka, muster, gateway)


async def metrics(gateway: GatewayProcess) -> list[Metric]:
    url = f"http://127.0.0.1:{gateway.metrics_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return list(text_string_to_metric_families(await response.text()))


def values_of(found: list[Metric], name: str) -> dict[str, float]:
    """By the value of the only label, "" where there is none."""
    return {
        next(iter(sample.labels.values()), ""): sample.value
        for family in found
        for sample in family.samples
        if sample.name == name
    }


def poll_until(condition: Callable[[], bool], step: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        step()


def produce(bootstrap: str, values: list[str]) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})
    for value in values:
        producer.produce(TOPIC, value, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(DEADLINE_S) == 0
    assert errors == []


def consume(bootstrap: str, group: str, values: list[str], **more: Any) -> None:
    """Each of the values is consumed once, and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **more,
        }
    )
    wanted, found = set(values), []

    def step() -> None:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            value = (message.value() or b"").decode()
            if value in wanted:
                found.append(value)

    try:
        consumer.subscribe([TOPIC])
        poll_until(lambda: len(found) >= len(values), step)
        assert sorted(found) == sorted(values)
        consumer.commit(asynchronous=False)
        committed = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=20)
        assert sum(each.offset for each in committed if each.offset > 0) >= len(values)
    finally:
        consumer.close()


async def groups_at(bootstrap: str) -> set[str]:
    code, output = await run_tool(*group_command(bootstrap, ["--list"]))
    assert code == 0, output
    return set(output.split())


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_librdkafka_gets_records_from_kafka_with_its_group_at_muster(site: Site, assignor: str) -> None:
    values = [f"librdkafka-{assignor}-{number}" for number in range(500)]
    group = f"{AT_MUSTER}librdkafka-{assignor}"
    await asyncio.to_thread(produce, site.bootstrap, values)
    await asyncio.to_thread(consume, site.bootstrap, group, values, **{"partition.assignment.strategy": assignor})
    assert group not in await groups_at(site.kafka.bootstrap)
    assert group in await groups_at(site.bootstrap)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_group_of_another_prefix_stays_at_kafka(site: Site) -> None:
    values = [f"stays-{number}" for number in range(100)]
    await asyncio.to_thread(produce, site.bootstrap, values)
    await asyncio.to_thread(consume, site.bootstrap, f"{AT_KAFKA}stays", values)
    assert f"{AT_KAFKA}stays" in await groups_at(site.kafka.bootstrap)
    assert f"{AT_KAFKA}stays" in await groups_at(site.bootstrap)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_group_of_kafka_that_has_a_prefix_of_muster_is_not_listed(site: Site) -> None:
    values = [f"old-{number}" for number in range(10)]
    group = f"{AT_MUSTER}old"
    await asyncio.to_thread(produce, site.bootstrap, values)
    await asyncio.to_thread(consume, site.kafka.bootstrap, group, values)
    assert group in await groups_at(site.kafka.bootstrap)
    assert group not in await groups_at(site.bootstrap)


@pytest.mark.asyncio(loop_scope="module")
async def test_kafka_python_gets_records(site: Site) -> None:
    values = {f"kafka-python-{number}" for number in range(200)}

    def work() -> set[str]:
        producer = KafkaProducer(bootstrap_servers=site.bootstrap, acks="all", **METADATA)
        for value in values:
            producer.send(TOPIC, value.encode())
        producer.flush(DEADLINE_S)
        producer.close()
        consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=site.bootstrap,
            group_id=f"{AT_MUSTER}python",
            auto_offset_reset="earliest",
            **METADATA,
        )
        found: set[str] = set()

        def step() -> None:
            for records in consumer.poll(timeout_ms=200).values():
                found.update(record.value.decode() for record in records)

        poll_until(lambda: values <= found, step)
        consumer.commit()
        consumer.close()
        return found

    assert values <= await asyncio.to_thread(work)


@pytest.mark.asyncio(loop_scope="module")
async def test_aiokafka_gets_records(site: Site) -> None:
    values = {f"aiokafka-{number}" for number in range(200)}
    await aiokafka_round(TOPIC, f"{AT_MUSTER}aio", values, DEADLINE_S, bootstrap_servers=site.bootstrap)


@pytest.mark.asyncio(loop_scope="module")
async def test_kafkas_own_tools_work_as_at_a_broker(site: Site, tmp_path: Path) -> None:
    """Java's producer and consumer, and the tools for groups and features."""
    group, lines = f"{AT_MUSTER}console", [f"console-{number}" for number in range(50)]
    produced = tmp_path / "lines"
    produced.write_text("".join(f"{line}\n" for line in lines))
    code, output = await run_tool(
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--throughput", "-1"),
        *("--num-records", str(len(lines)), "--payload-file", str(produced)),
        *("--producer-props", f"bootstrap.servers={site.bootstrap}", "acks=all"),
    )
    assert code == 0, output
    assert f"{len(lines)} records sent" in output
    code, output = await run_tool(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", site.bootstrap),
        *("--topic", TOPIC, "--group", group, "--from-beginning", "--timeout-ms", "15000"),
    )
    assert code == 0, output
    assert any(line in lines for line in output.splitlines())
    code, output = await run_tool(
        "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", site.bootstrap, "describe"
    )
    assert code == 0, output
    lines_of_it = [each for each in output.splitlines() if "transaction.version" in each]
    assert len(lines_of_it) == 1, output
    (line,) = lines_of_it
    assert "SupportedMaxVersion: 1" in line.replace("\t", " "), line
    assert "FinalizedVersionLevel: 1" in line.replace("\t", " "), line
    code, output = await run_tool(*group_command(site.bootstrap, ["--describe", "--group", group]))
    assert code == 0, output
    assert TOPIC in output


@pytest.mark.asyncio(loop_scope="module")
async def test_a_transactional_commit_to_muster_is_refused_and_not_lost_in_silence(site: Site) -> None:
    client = await KafkaClient.connect(site.gateway.port)
    m = schema("txn_offset_commit", 3)
    partition = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    answer = await client.call(
        m.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=f"{AT_MUSTER}eos",
            producer_id=1,
            producer_epoch=0,
            topics=(m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )
    )
    await client.close()
    assert int(answer.topics[0].partitions[0].error_code) == 35  # UNSUPPORTED_VERSION


@pytest.mark.asyncio(loop_scope="module")
async def test_answers_of_two_coordinators_come_in_the_order_of_the_requests(site: Site) -> None:
    client = await KafkaClient.connect(site.gateway.port)
    describe, metadata = schema("describe_groups", 5), schema("metadata", 12)
    classes: list[Any] = []
    sent = []
    for number in range(60):
        if number % 3:
            prefix = AT_MUSTER if number % 2 else AT_KAFKA
            request = describe.DescribeGroupsRequest(groups=(f"{prefix}{number}",), include_authorized_operations=False)
            classes.append(schema("describe_groups", 5, "response").DescribeGroupsResponse)
        else:
            request = metadata.MetadataRequest(
                topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
            classes.append(schema("metadata", 12, "response").MetadataResponse)
        sent.append(client.send(request))
    received = [(await client.receive(kind))[0] for kind in classes]
    await client.close()
    assert received == sent


@pytest.mark.asyncio(loop_scope="module")
async def test_metrics_count_what_passed_and_are_those_of_the_page(site: Site) -> None:
    before = await metrics(site.gateway)
    values = [f"metric-{number}" for number in range(20)]
    await asyncio.to_thread(produce, site.bootstrap, values)
    await asyncio.to_thread(consume, site.bootstrap, f"{AT_MUSTER}metrics", values)
    after = await metrics(site.gateway)
    page = METRICS_PAGE.read_text().partition("# Metrics of a gateway")[2]
    shown = {family.name for family in after if family.name.startswith("muster_")}
    assert shown == set(re.findall(r"`(muster_gateway_\w+)`", page))
    for name in ("muster_gateway_bytes_total", "muster_gateway_group_requests_total"):
        then, now = values_of(before, name), values_of(after, name)
        assert {label for label in now if now[label] > then.get(label, 0)} == set(now), name
    assert values_of(after, "muster_gateway_connections_ended_total")["client_ended"] > 0
    assert values_of(after, "muster_gateway_nodes") == {"broker": 3.0, "pod": 3.0}
    assert values_of(after, "muster_gateway_reachable") == {"upstream": 1.0, "muster": 1.0}
    assert values_of(after, "muster_gateway_group_requests_waiting") == {"": 0.0}


@pytest.mark.asyncio(loop_scope="module")
async def test_no_answer_names_a_brokers_address(site: Site) -> None:
    client = await KafkaClient.connect(site.gateway.port)
    metadata, cluster, find = schema("metadata", 12), schema("describe_cluster", 1), schema("find_coordinator", 4)
    nodes = (
        await client.call(
            metadata.MetadataRequest(
                topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
        )
    ).brokers
    described = (await client.call(cluster.DescribeClusterRequest(include_cluster_authorized_operations=False))).brokers
    asked = find.FindCoordinatorRequest(key_type=0, coordinator_keys=(f"{AT_MUSTER}a", f"{AT_KAFKA}a"))
    found = (await client.call(asked)).coordinators
    await client.close()
    pods = {1_000_000, 1_000_001, 1_000_002}
    assert {int(each.node_id) for each in nodes} == {int(each.broker_id) for each in described} == {0, 1, 2} | pods
    assert {each.key: int(each.node_id) in pods for each in found} == {f"{AT_MUSTER}a": True, f"{AT_KAFKA}a": False}
    real = set(site.kafka.ports)
    assert not real & {int(each.port) for each in (*nodes, *described, *found)}


@pytest.mark.asyncio(loop_scope="module")
async def test_muster_local_up_starts_a_gateway_and_keeps_it_running(kafka: KafkaCluster, tmp_path: Path) -> None:
    options = ["--pods", "1", "--partitions", "5", "--upstream", kafka.bootstrap, "--gateway-port", "0"]
    values = [f"local-{number}" for number in range(50)]

    def gateway_pid(local: LocalCluster) -> int:
        process = json.loads((local.data / "run.json").read_text())["gateway"]["process"]
        return int(process["pid"]) if process is not None else 0

    def work() -> None:
        with LocalCluster(tmp_path, *options) as local:
            line = local.wait_line("gateway bootstrap=")
            bootstrap = line.split()[1].removeprefix("bootstrap=")
            produce(bootstrap, values)
            consume(bootstrap, "local", values)
            first = gateway_pid(local)
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: gateway_pid(local) not in (0, first), "another gateway")
            consume(bootstrap, "local-again", values)
            second = gateway_pid(local)
            assert local.stop() == 0
            assert not alive(second)

    await asyncio.to_thread(work)
    assert not {"local", "local-again"} & await groups_at(kafka.bootstrap)
