"""TLS and SASL together: Kafka clients of three makers, certificates of clients, and what attackers try."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import AuthenticationFailedError, GroupAuthorizationFailedError
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyPartition

pytest.importorskip("cryptography")

from tests.support.certificates import HOUR, Authority, unchecked_context
from tests.support.certificates import pod as member
from tests.support.kafka import schema
from tests.support.pod import SoloPod
from tests.support.scram import log_in, users_file
from tests.support.secured_pod import SecuredPod

from muster_coordinator.security.tls import TlsFiles

pytestmark = pytest.mark.integration

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "a-Password-of-this-test"
DEADLINE_S = 30.0


@dataclass
class Secured(SecuredPod):
    authority: Authority
    root: Path


def acl(user: str, resource: str, name: str) -> dict[str, str]:
    return {"principal": f"User:{user}", "operation": "READ", "resource": resource, "name": name}


async def secured(tmp_path: Path, *config: str) -> AsyncIterator[Secured]:
    authority = Authority(tmp_path / "certificates")
    server = authority.write("server", member("pod-0"))
    (tmp_path / "users.json").write_text(users_file({"alice": PASSWORD}))
    (tmp_path / "acls.json").write_text(json.dumps({"acls": [acl("alice", "GROUP", "mine"), acl("*", "TOPIC", "t")]}))
    settings = [
        f"muster.listener.tls.dir={server.certificate.parent}",
        f"muster.acls.file={tmp_path / 'acls.json'}",
        "group.initial.rebalance.delay.ms=0",
        *config,
    ]
    async with SoloPod(tmp_path / "data", topics={"t": 1}, config=settings) as pod:
        yield Secured(pod, server, authority, tmp_path)


@pytest_asyncio.fixture
async def sasl(tmp_path: Path) -> AsyncIterator[Secured]:
    mechanisms = ",".join(MECHANISMS)
    more = [f"sasl.enabled.mechanisms={mechanisms}", f"muster.users.file={tmp_path / 'users.json'}"]
    async for found in secured(tmp_path, *more, "connection.failed.authentication.delay.ms=0"):
        yield found


@pytest_asyncio.fixture
async def mutual(tmp_path: Path) -> AsyncIterator[Secured]:
    rules = "RULE:^CN=muster-(.*)$/$1/"
    async for found in secured(tmp_path, "ssl.client.auth=required", f"ssl.principal.mapping.rules={rules}"):
        yield found


# -- unchanged clients ------------------------------------------------------------------------------------------------


def confluent(s: Secured, mechanism: str, user: str, password: str, group: str) -> tuple[Consumer, list[KafkaError]]:
    errors: list[KafkaError] = []
    consumer = Consumer(
        {
            "bootstrap.servers": s.address,
            "group.id": group,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": s.ca,
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": errors.append,
        }
    )
    return consumer, errors


async def test_librdkafka_commits_with_each_mechanism_and_is_told_what_is_wrong(sasl: Secured) -> None:
    def scenario(mechanism: str) -> None:
        consumer, _ = confluent(sasl, mechanism, "alice", PASSWORD, "mine")
        consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        assert consumer.committed([TopicPartition("t", 0)], timeout=20)[0].offset == 7
        consumer.close()
        for user, password in (("alice", "wrong"), ("nobody", PASSWORD)):
            consumer, errors = confluent(sasl, mechanism, user, password, "mine")
            deadline = time.monotonic() + DEADLINE_S
            while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
                assert time.monotonic() < deadline, errors
                consumer.poll(0.1)
            consumer.close()

    for mechanism in MECHANISMS:
        await asyncio.to_thread(scenario, mechanism)


async def test_librdkafka_is_told_that_it_may_not(sasl: Secured) -> None:
    def scenario() -> None:
        consumer, _ = confluent(sasl, "SCRAM-SHA-512", "alice", PASSWORD, "other")
        consumer.subscribe(["t"])
        deadline = time.monotonic() + DEADLINE_S
        while (message := consumer.poll(0.1)) is None or not message.error():
            assert time.monotonic() < deadline
        assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        consumer.close()
        mine, _ = confluent(sasl, "SCRAM-SHA-512", "alice", PASSWORD, "mine")
        with pytest.raises(KafkaException) as caught:
            mine.commit(offsets=[TopicPartition("hidden", 0, 7)], asynchronous=False)
        assert caught.value.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        mine.close()

    await asyncio.to_thread(scenario)


async def test_kafka_python_commits_with_each_mechanism_and_is_told_what_is_wrong(
    sasl: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    def consumer(mechanism: str, password: str) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=sasl.address,
            group_id="mine",
            security_protocol="SASL_SSL",
            ssl_cafile=sasl.ca,
            ssl_check_hostname=False,
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            enable_auto_commit=False,
            bootstrap_timeout_ms=4000,
        )

    def scenario(mechanism: str) -> None:
        found = consumer(mechanism, PASSWORD)
        found.assign([PyPartition("t", 0)])
        found.commit({PyPartition("t", 0): OffsetAndMetadata(55, "note", -1)})
        assert found.committed(PyPartition("t", 0)) == 55
        found.close()
        caplog.clear()
        with pytest.raises(KafkaTimeoutError):  # it tries again and again
            consumer(mechanism, "wrong")
        assert "SaslAuthenticationFailedError: Authentication failed" in caplog.text

    for mechanism in MECHANISMS:
        await asyncio.to_thread(scenario, mechanism)


async def test_aiokafka_commits_with_each_mechanism_and_is_told_what_is_wrong(
    sasl: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    def consumer(mechanism: str, password: str, group: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=sasl.address,
            group_id=group,
            security_protocol="SASL_SSL",
            ssl_context=sasl.context(),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            enable_auto_commit=False,
        )

    caplog.set_level(logging.CRITICAL, "aiokafka")
    partition = AioPartition("t", 0)
    for mechanism in MECHANISMS:
        found = consumer(mechanism, PASSWORD, "mine")
        await found.start()
        found.assign([partition])
        await found.commit({partition: 66})
        assert await found.committed(partition) == 66
        await found.stop()
        refused = consumer(mechanism, "wrong", "mine")
        with pytest.raises((AuthenticationFailedError, Exception), match=r"(?i)authentication|bootstrap"):
            await refused.start()
        await refused.stop()
    other = consumer("PLAIN", PASSWORD, "other")
    await other.start()
    other.assign([partition])
    with pytest.raises(GroupAuthorizationFailedError):
        await other.commit({partition: 66})
    await other.stop()


# -- passwords stay where they are ------------------------------------------------------------------------------------


async def test_no_secret_is_in_logs_metrics_or_status(sasl: Secured) -> None:
    """Right, wrong and malformed logins, and a request that fails to decode with a password in it."""
    for mechanism, password in (("PLAIN", PASSWORD), ("PLAIN", PASSWORD + "x"), ("SCRAM-SHA-512", PASSWORD)):
        client = await sasl.client()
        await log_in(client, "alice", password, mechanism)
        await client.close()
    malformed = await sasl.client()
    await malformed.call(schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="PLAIN"))
    await malformed.call(schema("sasl_authenticate", 2).SaslAuthenticateRequest(auth_bytes=PASSWORD.encode()))
    raw = await sasl.client()
    raw.writer.write(len(PASSWORD).to_bytes(4, "big") + PASSWORD.encode())
    assert await raw.reader.read() == b""
    (sasl.root / "users.json").write_text(json.dumps({"users": {"alice": {"PLAIN": PASSWORD}}}))
    async with asyncio.timeout(DEADLINE_S):
        while "security_file_refused" not in sasl.pod.log():
            await asyncio.sleep(0.05)
    async with sasl.pod._session.get(f"http://127.0.0.1:{sasl.pod.api_port}/metrics") as response:
        metrics = await response.text()
    shown = sasl.pod.log() + metrics + repr(await sasl.pod.api.status())
    assert "login_refused" in shown
    stored = users_file({"alice": PASSWORD}).partition("stored_key=")[2][:20]
    for secret in (PASSWORD, PASSWORD[:-1], stored, "Traceback"):
        assert secret not in shown


# -- certificates of clients ------------------------------------------------------------------------------------------


async def test_subject_of_the_certificate_is_the_principal(mutual: Secured) -> None:
    async def codes(name: str) -> list[int]:
        files = mutual.authority.write(name, member(name))
        client = await mutual.client(unchecked_context(files))
        found = [await client.commit(group, 5) for group in ("mine", "other")]
        await client.close()
        return found

    assert await codes("muster-alice") == [0, 30]
    assert await codes("muster-bob") == [30, 30]
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await codes("alice")
    assert await mutual.pod.metric("muster_connection_errors_total", reason="no_principal") == 1


async def test_clients_without_a_good_certificate_are_not_let_in(mutual: Secured) -> None:
    stranger = Authority(mutual.root / "strangers").write("muster-alice", member("muster-alice"))

    async def commit(files: TlsFiles | None) -> None:
        client = await mutual.client(unchecked_context(files))
        await client.commit("mine", 5)

    for files in (None, stranger):
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await commit(files)


async def test_new_certificate_counts_for_new_connections_and_open_ones_go_on(sasl: Secured) -> None:
    before = await sasl.client()
    await log_in(before, "alice", PASSWORD)
    first = before.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    sasl.authority.write("server", member("pod-0"), 2 * HOUR)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            after = await sasl.client()
            if after.writer.get_extra_info("ssl_object").getpeercert(binary_form=True) != first:
                break
            await after.close()
            await asyncio.sleep(0.1)
    assert (await log_in(after, "alice", PASSWORD)).error_code == 0
    assert await before.commit("mine", 5) == 0
    assert await after.commit("mine", 6) == 0


# -- attackers --------------------------------------------------------------------------------------------------------


async def test_plain_text_and_old_tls_are_refused_and_others_served(sasl: Secured) -> None:
    plain = await sasl.pod.client()
    plain.writer.write(bytes.fromhex("0000000a00120000000000000000"))
    answer: Any = b""
    async with asyncio.timeout(DEADLINE_S):
        try:
            answer = await plain.reader.read()
        except OSError:
            pass
    assert answer[:1] in (b"", b"\x15"), "at most a TLS alert"
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await sasl.client(unchecked_context(None, version=ssl.TLSVersion.TLSv1_1))
    client = await sasl.client()
    assert (await log_in(client, "alice", PASSWORD)).error_code == 0


async def test_silent_handshakes_end_in_time_and_others_are_served(sasl: Secured) -> None:
    silent = [await sasl.pod.client() for _ in range(50)]
    client = await sasl.client()
    assert (await log_in(client, "alice", PASSWORD)).error_code == 0
    async with asyncio.timeout(DEADLINE_S):
        for each in silent:
            assert await each.reader.read() == b""
    assert await client.commit("mine", 5) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["muster.listener.tls.dir=/nowhere"], "/nowhere/tls.crt with /nowhere/tls.key: No such file"),
        (["ssl.client.auth=required"], r"ssl\.client\.auth needs muster\.listener\.tls\.dir"),
        (["ssl.client.auth=maybe"], "none, requested or required"),
        (["ssl.principal.mapping.rules=RULE:x"], "no rule at 'RULE:x'"),
    ],
)
async def test_pod_does_not_start_half_protected(tmp_path: Path, settings: list[str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        await SoloPod(tmp_path / "data", config=settings).__aenter__()
