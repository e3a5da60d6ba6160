"""OAUTHBEARER of a real pod: tokens, their end, keys that change, and Kafka clients of three makers."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("jwt")

from aiohttp import web
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafka import KafkaConsumer
from kafka.net.sasl.oauth import AbstractTokenProvider as PyTokenProvider
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyPartition
from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.kafka import KafkaClient, schema
from tests.support.pod import SoloPod, free_ports
from tests.support.scram import log_in, users_file
from tests.support.secured_pod import SecuredPod
from tests.support.tokens import AUDIENCE, ISSUER, Provider, first_message, key_set, write_keys

from muster_coordinator.security.tls import TlsFiles

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
INVALID = '{"status":"invalid_token"}'
PROVIDER, NEXT = Provider("k1"), Provider("k2", "ES256")


@dataclass
class Secured(SecuredPod):
    keys: Path


def settings(tmp_path: Path, server: TlsFiles, keys: str, *more: str) -> list[str]:
    (tmp_path / "users.json").write_text(users_file({"alice": "pencil"}))
    return [
        f"muster.listener.tls.dir={server.certificate.parent}",
        "sasl.enabled.mechanisms=OAUTHBEARER,SCRAM-SHA-512",
        f"muster.users.file={tmp_path / 'users.json'}",
        f"sasl.oauthbearer.jwks.endpoint.url={keys}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        "sasl.oauthbearer.clock.skew.seconds=0",
        "connection.failed.authentication.delay.ms=0",
        "group.initial.rebalance.delay.ms=0",
        *more,
    ]


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    keys = tmp_path / "keys.json"
    write_keys(keys, PROVIDER)
    server = Authority(tmp_path / "certificates").write("server", member("pod-0"))
    config = settings(tmp_path, server, keys.as_uri())
    async with SoloPod(tmp_path / "data", topics={"t": 1}, config=config) as pod:
        yield Secured(pod, server, keys)


async def present(client: KafkaClient, token: str) -> Any:
    """Handshake and the first answer."""
    assert (
        await client.call(schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    ).error_code == 0
    return await authenticate(client, first_message(token))


async def authenticate(client: KafkaClient, value: bytes) -> Any:
    return await client.call(schema("sasl_authenticate", 2).SaslAuthenticateRequest(auth_bytes=value))


async def closed(client: KafkaClient) -> bool:
    async with asyncio.timeout(DEADLINE_S):
        return await client.reader.read() == b""


def rest_s(answer: Any) -> float:
    return float(answer.session_lifetime.total_seconds())


async def test_good_token_lets_in_and_says_how_long(secured: Secured) -> None:
    client = await secured.client()
    answer = await present(client, PROVIDER.token("alice", 600))
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert 590 < rest_s(answer) <= 600
    assert await client.commit("g", 5) == 0


async def test_bad_tokens_are_told_as_by_kafka(secured: Secured) -> None:
    for token in (PROVIDER.token(lifetime_s=-1), NEXT.token(), PROVIDER.token(aud="other"), "no.token.atall"):
        client = await secured.client()
        answer = await present(client, token)
        assert (answer.error_code, answer.auth_bytes.decode(), rest_s(answer)) == (0, INVALID, 0)
        answer = await authenticate(client, b"\x01")
        assert (answer.error_code, answer.error_message) == (58, INVALID)
        assert await closed(client)
    assert "ExpiredSignatureError" in secured.pod.log()
    assert token not in secured.pod.log()


async def test_session_ends_with_the_token_and_another_token_continues_it(secured: Secured) -> None:
    faithful, other = await secured.client(), await secured.client()
    for client in (faithful, other):
        assert 0 < rest_s(await present(client, PROVIDER.token("alice", 3))) <= 3
    begin = time.monotonic()
    await asyncio.sleep(1)
    assert rest_s(await present(faithful, PROVIDER.token("alice", 600))) > 590
    while time.monotonic() < begin + 5:
        assert await faithful.commit("g", 5) == 0
        await asyncio.sleep(0.1)
    other.send(schema("heartbeat", 4).HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    assert await closed(other)
    answer = await present(faithful, PROVIDER.token("bob"))
    assert answer.error_code == 58
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


async def test_users_of_the_file_come_and_go_without_those_of_tokens(secured: Secured, tmp_path: Path) -> None:
    by_token, by_password = await secured.client(), await secured.client()
    await present(by_token, PROVIDER.token("carol"))
    assert (await log_in(by_password, "alice", "pencil")).error_code == 0
    (tmp_path / "users.json").write_text(users_file({"bob": "builder"}))
    assert await closed(by_password)
    assert await by_token.commit("g", 5) == 0


async def test_keys_of_a_file_change_while_clients_stay(secured: Secured) -> None:
    before = await secured.client()
    await present(before, PROVIDER.token())
    write_keys(secured.keys, NEXT)
    async with asyncio.timeout(DEADLINE_S):
        while (await present(await secured.client(), NEXT.token())).auth_bytes:
            await asyncio.sleep(0.1)
    assert (await present(await secured.client(), PROVIDER.token())).auth_bytes.decode() == INVALID
    assert await before.commit("g", 5) == 0


async def test_keys_of_an_address_are_waited_for_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is away when the pod starts, comes, changes its key, and goes."""
    published = key_set(PROVIDER.public())
    server = Authority(tmp_path / "certificates").write("server", member("pod-0"))

    async def keys(_: web.Request) -> web.Response:
        return web.Response(body=published, content_type="application/json")

    app = web.Application()
    app.router.add_get("/keys", keys)
    runner = web.AppRunner(app)
    await runner.setup()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.certificate, server.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(server.authorities))
    url = f"https://127.0.0.1:{(port := free_ports(1)[0])}/keys"
    pause = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=500"
    async with SoloPod(tmp_path / "data", config=settings(tmp_path, server, url, pause)) as pod:
        s = Secured(pod, server, tmp_path)
        assert "token_keys_refused" in pod.log()
        with pytest.raises(asyncio.IncompleteReadError):  # nothing final: the client tries again
            await present(await s.client(), PROVIDER.token())
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        await _until_taken(s, PROVIDER)
        published = key_set(PROVIDER.public(), NEXT.public())
        await _until_taken(s, NEXT)
        await runner.cleanup()
        assert (await present(await s.client(), Provider("k3").token())).auth_bytes.decode() == INVALID
        async with asyncio.timeout(DEADLINE_S):
            while pod.log().count("token_keys_refused") < 2:
                await asyncio.sleep(0.1)
        assert not (await present(await s.client(), PROVIDER.token())).auth_bytes


async def _until_taken(s: Secured, provider: Provider) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            client = await s.client()
            try:
                if not (await present(client, provider.token())).auth_bytes:
                    return
            except asyncio.IncompleteReadError:
                pass
            finally:
                await client.close()
            await asyncio.sleep(0.1)


# -- unchanged clients ------------------------------------------------------------------------------------------------


async def test_librdkafka_logs_in_by_tokens_and_is_told_of_a_bad_one(secured: Secured) -> None:
    def consumer(token: str, errors: list[KafkaError]) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": secured.address,
                "group.id": "g",
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": secured.ca,
                "sasl.mechanisms": "OAUTHBEARER",
                "oauth_cb": lambda _: (token, time.time() + 600),
                "error_cb": errors.append,
            }
        )

    def scenario() -> None:
        good = consumer(PROVIDER.token(), [])
        good.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        assert good.committed([TopicPartition("t", 0)], timeout=20)[0].offset == 7
        good.close()
        errors: list[KafkaError] = []
        bad = consumer(PROVIDER.token(lifetime_s=-1), errors)
        deadline = time.monotonic() + DEADLINE_S
        while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            assert time.monotonic() < deadline, errors
            bad.poll(0.1)
        assert any("invalid_token" in error.str() for error in errors)
        bad.close()

    await asyncio.to_thread(scenario)


async def test_kafka_python_logs_in_by_tokens(secured: Secured) -> None:
    class Tokens(PyTokenProvider):
        def token(self) -> str:
            return PROVIDER.token()

    def scenario() -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=secured.address,
            group_id="g",
            security_protocol="SASL_SSL",
            ssl_cafile=secured.ca,
            ssl_check_hostname=False,
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
            enable_auto_commit=False,
        )
        consumer.assign([PyPartition("t", 0)])
        consumer.commit({PyPartition("t", 0): OffsetAndMetadata(55, "note", -1)})
        assert consumer.committed(PyPartition("t", 0)) == 55
        consumer.close()

    await asyncio.to_thread(scenario)


async def test_aiokafka_logs_in_by_tokens(secured: Secured) -> None:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return PROVIDER.token()

    consumer = AIOKafkaConsumer(
        bootstrap_servers=secured.address,
        group_id="g",
        security_protocol="SASL_SSL",
        ssl_context=secured.context(),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
        enable_auto_commit=False,
    )
    await consumer.start()
    consumer.assign([AioPartition("t", 0)])
    await consumer.commit({AioPartition("t", 0): 66})
    assert await consumer.committed(AioPartition("t", 0)) == 66
    await consumer.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url=", r"OAUTHBEARER needs sasl\.oauthbearer\.jwks\.endpoint\.url"),
        ("sasl.oauthbearer.jwks.endpoint.url=http://x", "https://... or file:///... is needed"),
        ("sasl.oauthbearer.jwks.endpoint.url=file:///nowhere", r"jwks\.endpoint\.url: /nowhere: No such file"),
        ("muster.listener.tls.dir=", "OAUTHBEARER sends tokens as they are, and there is no TLS"),
    ],
)
async def test_pod_does_not_start_half_protected(tmp_path: Path, change: str, message: str) -> None:
    server = Authority(tmp_path / "certificates").write("server", member("pod-0"))
    keys = tmp_path / "keys.json"
    write_keys(keys, PROVIDER)
    with pytest.raises(AssertionError, match=message):
        await SoloPod(tmp_path / "data", config=settings(tmp_path, server, keys.as_uri(), change)).__aenter__()
