"""Unchanged clients through a gateway with TLS, with a real Kafka broker behind it that asks for TLS and logins; and a
mirror of that broker.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.support.aiokafka_round import aiokafka_round
from tests.support.gateway import GatewayProcess
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import run_tool, why_no_kafka_yet
from tests.support.mirrored import groups_of, listed, until
from tests.support.pod import SoloPod
from tests.support.scram import client_final, client_first, log_in

pytest.importorskip("cryptography")

from tests.support.certificates import Authority, unchecked_context
from tests.support.certificates import pod as member
from tests.support.secured_kafka import (
    GUARDED,
    GUARDED_GROUPS,
    PASSWORDS,
    account,
    create_users,
    secured_broker,
    secured_pod,
)
from tests.support.secured_site import OWN_USERS, Site, described

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(240),
]
here = pytest.mark.asyncio(loop_scope="module")

TOPIC, PARTITIONS = "orders", 3
DEADLINE_S = 60.0
HOUR = datetime.timedelta(hours=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "certificates")
    async with AsyncExitStack() as stack:
        kafka = secured_broker(directory, authority, {TOPIC: PARTITIONS, GUARDED: 1})
        await stack.enter_async_context(kafka)
        await asyncio.to_thread(create_users, kafka)
        pod = secured_pod(directory / "pod", authority.write("pod", member("pod-0")))
        await stack.enter_async_context(pod)
        site = Site(directory, authority, kafka, pod)
        await stack.enter_async_context(site.passing)
        await stack.enter_async_context(site.asking)
        yield site


def poll_until(condition: Callable[[], bool], step: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        step()


def round_trip(client: dict[str, Any], name: str, groups: tuple[str, ...]) -> None:
    """Records are produced, and each group gets all of them and commits."""
    values = {f"{name}-{number}" for number in range(60)}
    errors: list[Any] = []
    producer = Producer({**client, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(DEADLINE_S) == 0
    assert errors == []
    for group in groups:
        consume(client, group, values)


def consume(client: dict[str, Any], group: str, values: set[str]) -> None:
    more = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer, found = Consumer({**client, **more}), set[str]()

    def step() -> None:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.add((message.value() or b"").decode())

    try:
        consumer.subscribe([TOPIC])
        poll_until(lambda: values <= found, step)
        consumer.commit(asynchronous=False)
        committed = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=20)
        assert sum(each.offset for each in committed if each.offset > 0) >= len(values)
    finally:
        consumer.close()


@here
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_librdkafka_logs_in_through_the_gateway_and_its_groups_are_at_both(site: Site, mechanism: str) -> None:
    client = site.librdkafka(site.passing, mechanism, "alice", PASSWORDS["alice"])
    name = mechanism.lower()
    await asyncio.to_thread(round_trip, client, name, (f"{GUARDED_GROUPS}{name}", f"k-{name}"))
    kafkas = await listed(site.kafka.port)
    assert kafkas is not None
    assert {f"k-{name}", f"{GUARDED_GROUPS}{name}"} & {group for group, _ in kafkas} == {f"k-{name}"}


@here
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_gateway_that_asks_clients_itself_logs_in_at_the_broker(site: Site, mechanism: str) -> None:
    client = site.librdkafka(site.asking, mechanism, "carol", OWN_USERS["carol"])
    name = f"asked-{mechanism.lower()}"
    await asyncio.to_thread(round_trip, client, name, (f"m-free-{name}", f"k-{name}"))


@here
async def test_aiokafka_logs_in_through_the_gateway(site: Site) -> None:
    values = {f"aiokafka-{number}" for number in range(60)}
    client = {
        "bootstrap_servers": site.passing.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
        "ssl_context": ssl.create_default_context(cafile=site.ca),
    }
    await aiokafka_round(TOPIC, f"{GUARDED_GROUPS}aio", values, DEADLINE_S, **client)


@here
async def test_kafkas_own_tools_log_in_through_the_gateway(site: Site, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="alice" password="{PASSWORDS["alice"]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={site.ca}\n"
    )
    lines = [f"console-{number}" for number in range(20)]
    produced = tmp_path / "lines"
    produced.write_text("".join(f"{line}\n" for line in lines))
    code, output = await run_tool(
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", GUARDED, "--throughput", "-1"),
        *("--num-records", str(len(lines)), "--payload-file", str(produced), "--command-config", str(properties)),
        *("--producer-props", f"bootstrap.servers={site.passing.bootstrap}", "acks=all"),
    )
    assert code == 0, output
    assert f"{len(lines)} records sent" in output, output
    group = f"{GUARDED_GROUPS}console"
    code, output = await run_tool(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", site.passing.bootstrap),
        *("--topic", GUARDED, "--group", group, "--from-beginning", "--max-messages", str(len(lines))),
        *("--timeout-ms", "60000", "--command-config", str(properties)),
    )
    assert code == 0, output
    assert set(output.splitlines()) & set(lines), output


@here
async def test_broker_and_pod_know_which_user_a_client_is(site: Site) -> None:
    """A topic of Kafka's and groups of Muster's that are alice's are not bob's."""

    def write(user: str) -> Any:
        errors: list[Any] = []
        producer = Producer(site.librdkafka(site.passing, "SCRAM-SHA-512", user, PASSWORDS[user]))
        producer.produce(GUARDED, user, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return errors[0]

    def fetch(gateway: GatewayProcess, user: str, password: str) -> int:
        client = site.librdkafka(gateway, "SCRAM-SHA-512", user, password)
        consumer = Consumer({**client, "group.id": f"{GUARDED_GROUPS}who"})
        try:
            consumer.committed([TopicPartition(TOPIC, 0)], timeout=20)
        except KafkaException as error:
            return int(error.args[0].code())
        finally:
            consumer.close()
        return 0

    assert await asyncio.to_thread(write, "alice") is None
    refused = await asyncio.to_thread(write, "bob")
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert await asyncio.to_thread(fetch, site.passing, "alice", PASSWORDS["alice"]) == 0
    for gateway, user, password in (
        (site.passing, "bob", PASSWORDS["bob"]),
        (site.asking, "carol", OWN_USERS["carol"]),
    ):
        assert await asyncio.to_thread(fetch, gateway, user, password) == KafkaError.GROUP_AUTHORIZATION_FAILED


@here
async def test_mirror_follows_over_tls_and_a_wrong_password_is_counted_and_mended_without_a_restart(
    site: Site,
) -> None:
    client = site.librdkafka(site.passing, "SCRAM-SHA-512", "alice", PASSWORDS["alice"])
    names = ("k-mirrored-1", "k-mirrored-2")
    await asyncio.to_thread(round_trip, client, "mirrored", names)
    files = account(site.directory / "mirror", "mirror", "wrong")
    pod = SoloPod(
        site.directory / "mirroring" / "data",
        5,
        config=[
            f"muster.upstream.bootstrap=127.0.0.1:{site.kafka.sasl_port}",
            "muster.upstream.served.groups=m-",
            "muster.upstream.fetch.wait.ms=50",
            "muster.upstream.security.protocol=SASL_SSL",
            "muster.upstream.sasl.mechanism=SCRAM-SHA-256",
            f"muster.upstream.sasl.dir={files}",
            f"muster.upstream.ssl.truststore.location={site.ca}",
        ],
        any_topic=True,
    )
    async with pod:

        async def refused() -> bool:
            return await pod.metric("muster_mirror_connections_refused_total", reason="login") > 0

        await until(refused, "the login of the mirror is refused and counted")
        assert "it refuses the login: Authentication failed" in pod.log()
        served = await pod.client()
        assert await served.commit("m-own", 7) == 0, "groups of Muster's go on"
        await served.close()
        account(files, "mirror")

        async def equal() -> bool:
            return await groups_of(pod.kafka_port, names) == await groups_of(site.kafka.port, names)

        await until(equal, "the mirror shows Kafka's groups as Kafka does")
        assert await pod.metric("muster_mirror_connections_refused_total", reason="tls") == 0
        assert PASSWORDS["mirror"] not in pod.log()


async def by_token(site: Site, extension: str) -> KafkaClient:
    """A client that has logged in at the broker by a delegation token of alice's."""
    m = schema("create_delegation_token", 3)
    alice = await KafkaClient.connect(site.passing.port, tls=unchecked_context(None))
    assert not (await log_in(alice, "alice", PASSWORDS["alice"])).error_code
    nobody = {"owner_principal_type": None, "owner_principal_name": None}
    token = await alice.call(m.CreateDelegationTokenRequest(renewers=(), max_lifetime=HOUR, **nobody))
    assert (token.error_code, token.principal_name) == (0, "alice")
    await alice.close()
    request = schema("sasl_authenticate", 2).SaslAuthenticateRequest
    async with asyncio.timeout(DEADLINE_S):
        while True:  # the broker does not know the token at once
            client = await KafkaClient.connect(site.passing.port, tls=unchecked_context(None))
            await client.call(schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
            first = client_first(token.token_id, "clients") + f",tokenauth={extension}".encode()
            challenge = await client.call(request(auth_bytes=first))
            if not challenge.error_code:
                password = base64.b64encode(token.hmac).decode()
                final, _ = client_final("sha256", first, challenge.auth_bytes, password)
                assert not (await client.call(request(auth_bytes=final))).error_code
                return client
            await client.close()
            await asyncio.sleep(0.2)


@here
@pytest.mark.parametrize("extension", ["true", "TRUE"])
async def test_delegation_token_acts_for_nobody_by_name_and_a_token_after_the_login_changes_nothing(
    site: Site, extension: str
) -> None:
    """Kafka takes the client for alice, and what it sends then for no login."""
    client = await by_token(site, extension)
    stray = schema("sasl_authenticate", 1).SaslAuthenticateRequest(auth_bytes=b"\0alice\0pencil")
    assert (await client.call(stray)).error_code == 34  # ILLEGAL_SASL_STATE
    assert (await client.call(described())).groups[0].error_code == 0
    assert (await client.call(described(f"{GUARDED_GROUPS}t"))).groups[0].error_code == 30  # not alice, nor the gateway
    await client.close()
