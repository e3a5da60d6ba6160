"""Who gets through a gateway: logins that pass and that it asks for, certificates, files that change, hostile input.

The upstream is a Muster pod, which asks as a broker does; `test_secured_gateway.py` has the same with Kafka.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.gateway import GatewayProcess
from tests.support.kafka import KafkaClient, schema
from tests.support.mirrored import until
from tests.support.pod import SoloPod
from tests.support.scram import log_in, users_file

pytest.importorskip("cryptography")

from tests.support.certificates import Authority, spoken, unchecked_context
from tests.support.certificates import pod as member
from tests.support.secured_kafka import GUARDED_GROUPS, PASSWORDS, account, secured_pod
from tests.support.secured_site import OWN_USERS, Site, described

pytestmark = pytest.mark.integration
here = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 60.0


class UpstreamPod(SoloPod):
    """It knows all of PASSWORDS."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        directory.mkdir()
        users = directory / "users.json"
        users.write_text(users_file(PASSWORDS))
        config = [
            f"muster.listener.tls.dir={authority.write('upstream', member('pod-0')).certificate.parent}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"muster.users.file={users}",
            "connection.failed.authentication.delay.ms=0",
        ]
        super().__init__(directory / "data", config=config, any_topic=True)
        self.sasl_port = self.kafka_port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("logins")
    authority = Authority(directory / "certificates")
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(UpstreamPod(directory / "upstream", authority))
        pod = secured_pod(directory / "pod", authority.write("pod", member("pod-0")))
        await stack.enter_async_context(pod)
        site = Site(directory, authority, upstream, pod)
        await stack.enter_async_context(site.passing)
        await stack.enter_async_context(site.asking)
        yield site


def finds(group: str = "m-free-raw") -> Any:
    return schema("find_coordinator", 4).FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))


@here
async def test_groups_of_a_user_are_asked_for_on_its_behalf(site: Site) -> None:
    """Whichever way the client has logged in; the gateway's own user may only see that they are there."""
    for gateway, user, password, code in (
        (site.passing, "alice", PASSWORDS["alice"], 0),
        (site.passing, "bob", PASSWORDS["bob"], 30),  # GROUP_AUTHORIZATION_FAILED
        (site.asking, "carol", OWN_USERS["carol"], 30),
    ):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            client = await KafkaClient.connect(gateway.port, tls=unchecked_context(None))
            assert not (await log_in(client, user, password, mechanism)).error_code
            answer = await client.call(described(f"{GUARDED_GROUPS}who"))
            assert int(answer.groups[0].error_code) == code, (user, mechanism)
            await client.close()


@here
@pytest.mark.parametrize("which", ["passing", "asking"])
@pytest.mark.parametrize("asked", [described, finds])
@pytest.mark.parametrize("begun", [False, True])
async def test_nobody_gets_an_answer_about_groups_of_muster_without_a_login(
    site: Site, which: str, asked: Callable[[], Any], begun: bool
) -> None:
    """Neither before a login nor in the middle of one."""
    gateway: GatewayProcess = getattr(site, which)
    client = await KafkaClient.connect(gateway.port, tls=unchecked_context(None))
    if begun:
        handshake = schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="SCRAM-SHA-512")
        assert (await client.call(handshake)).error_code == 0
    try:
        async with asyncio.timeout(DEADLINE_S):
            answer = await client.call(asked())
    except (OSError, asyncio.IncompleteReadError):
        pass  # the connection ended
    else:
        groups = getattr(answer, "groups", None) or answer.coordinators
        assert {int(each.error_code) for each in groups} == {34}, answer  # ILLEGAL_SASL_STATE
    await client.close()


@here
@pytest.mark.parametrize("which", ["passing", "asking"])
async def test_wrong_password_of_a_client_is_told_and_costs_its_connection_alone(site: Site, which: str) -> None:
    gateway: GatewayProcess = getattr(site, which)
    user, password = ("alice", PASSWORDS["alice"]) if which == "passing" else ("dan", OWN_USERS["dan"])
    good = await KafkaClient.connect(gateway.port, tls=unchecked_context(None))
    assert not (await log_in(good, user, password)).error_code
    bad = await KafkaClient.connect(gateway.port, tls=unchecked_context(None))
    assert (await log_in(bad, user, "wrong")).error_code == 58  # SASL_AUTHENTICATION_FAILED
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        async with asyncio.timeout(DEADLINE_S):
            await bad.call(described())
    assert (await good.call(described())).groups[0].error_code == 0
    await good.close()
    await bad.close()


@here
async def test_nobody_becomes_another_user_on_the_same_connection(site: Site) -> None:
    client = await KafkaClient.connect(site.passing.port, tls=unchecked_context(None))
    assert not (await log_in(client, "bob", PASSWORDS["bob"])).error_code
    assert (await client.call(described())).groups[0].error_code == 0
    assert (await log_in(client, "alice", PASSWORDS["alice"])).error_code == 34  # ILLEGAL_SASL_STATE
    stray = schema("sasl_authenticate", 1).SaslAuthenticateRequest(auth_bytes=b"\0alice\0pencil")
    assert (await client.call(stray)).error_code == 34  # the same
    answer = await client.call(described(f"{GUARDED_GROUPS}x"))
    assert answer.groups[0].error_code == 30  # GROUP_AUTHORIZATION_FAILED
    await client.close()


@here
async def test_user_that_the_gateway_knows_no_more_is_out(site: Site) -> None:
    client = await KafkaClient.connect(site.asking.port, tls=unchecked_context(None))
    assert not (await log_in(client, "dan", OWN_USERS["dan"])).error_code
    assert (await client.call(described())).groups[0].error_code == 0
    site.write_users({"carol": OWN_USERS["carol"]})
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await client.reader.read() == b""
    finally:
        site.write_users(OWN_USERS)
    await client.close()


@here
async def test_certificate_of_a_client_says_who_it_is(site: Site) -> None:
    """The broker sees the gateway's account, Muster the name in the certificate."""
    rules = "RULE:^CN=(.*?)(,.*)?$/$1/L"
    settings = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": rules, "muster.act.for.clients": "1"}
    shown = site.authority.write("client", member("ALICE"))
    another = site.authority.write("another", member("Bob"))
    stranger = Authority(site.directory / "strangers").write("client", member("ALICE"))
    async with site.gateway("by-certificate", settings) as gateway:
        for files, code in ((shown, 0), (another, 30)):  # GROUP_AUTHORIZATION_FAILED
            client = await KafkaClient.connect(gateway.port, tls=unchecked_context(files))
            assert int((await client.call(described(f"{GUARDED_GROUPS}c"))).groups[0].error_code) == code
            metadata = schema("metadata", 12).MetadataRequest(
                topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
            assert (await client.call(metadata)).brokers
            await client.close()
        request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
        for context in (unchecked_context(None), unchecked_context(stranger), None):
            assert await spoken(gateway.port, context, request) == b""
        assert await spoken(gateway.port, unchecked_context(shown), request)


# -- files that change, passwords that are wrong -----------------------------------------------------------------------


def shown_certificate(port: int) -> bytes:
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


@here
async def test_renewed_certificate_counts_for_new_connections_and_open_ones_stay(site: Site) -> None:
    open_before = await KafkaClient.connect(site.passing.port, tls=unchecked_context(None))
    assert not (await log_in(open_before, "bob", PASSWORDS["bob"])).error_code
    before = await asyncio.to_thread(shown_certificate, site.passing.port)
    site.authority.write("gateway-passing", member("gateway"))

    async def changed() -> bool:
        return await asyncio.to_thread(shown_certificate, site.passing.port) != before

    await until(changed, "the gateway shows the new certificate")
    assert (await open_before.call(described())).groups[0].error_code == 0
    await open_before.close()


@here
async def test_wrong_password_upstream_is_logged_and_the_right_one_counts_without_a_restart(site: Site) -> None:
    gateway = site.gateway("wrong", {})
    account(site.directory / "wrong" / "account", "gateway", "wrong")
    starting = asyncio.ensure_future(gateway.start())
    try:
        await until(lambda: _logged(gateway), "the gateway says that its login is refused")
        (line,) = gateway.events("upstream_not_reachable")
        assert "it refuses the login: Authentication failed" in str(line["error"])
        assert "wrong" not in str(line["error"])
        account(site.directory / "wrong" / "account", "gateway")
        await starting
    finally:
        starting.cancel()
        gateway.kill()


async def _logged(gateway: GatewayProcess) -> bool:
    return gateway.log_file.exists() and bool(gateway.events("upstream_not_reachable"))


@here
async def test_authority_that_did_not_sign_the_brokers_certificate_is_said(site: Site) -> None:
    other = Authority(site.directory / "others").write("other", member("x")).authorities
    gateway = site.gateway("untrusted", {"upstream.ssl.truststore.location": str(other)})
    starting = asyncio.ensure_future(gateway.start())
    try:
        await until(lambda: _logged(gateway), "the gateway says that it does not trust the broker")
        assert "certificate verify failed" in str(gateway.events("upstream_not_reachable")[0]["error"])
    finally:
        starting.cancel()
        gateway.kill()


# -- hostile input -----------------------------------------------------------------------------------------------------


@here
@pytest.mark.parametrize("which", ["passing", "asking"])
async def test_hostile_input_on_the_tls_port_costs_its_own_connection(site: Site, which: str) -> None:
    gateway: GatewayProcess = getattr(site, which)
    port, context = gateway.port, unchecked_context(None)
    user, password = ("bob", PASSWORDS["bob"]) if which == "passing" else ("carol", OWN_USERS["carol"])
    client = await KafkaClient.connect(port, tls=context)
    assert not (await log_in(client, user, password)).error_code
    api_versions = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    half_open = [await asyncio.open_connection("127.0.0.1", port) for _ in range(600)]
    try:
        for plain in (api_versions, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(4000), bytes(70_000)):
            answer = await spoken(port, None, plain)
            assert answer == b"" or answer[0] == 21, answer[:20]  # nothing, or an alert of TLS
        token = struct.pack(">hhih", 36, 1, 3, -1) + struct.pack(">i", 1 << 30)
        for inside in (
            struct.pack(">i", -1),
            struct.pack(">i", 2**31 - 1) + bytes(1000),
            struct.pack(">ihhih", 10, 999, 0, 1, -1),
            struct.pack(">i", len(token)) + token,
            struct.pack(">ihhihh", 12, 17, 0, 2, -1, 0),  # SaslHandshake 0 without a mechanism
            bytes(100_000),
        ):
            assert len(await spoken(port, context, inside)) <= 200
        assert (await client.call(described())).groups[0].error_code == 0
        another = await KafkaClient.connect(port, tls=context)
        assert not (await log_in(another, user, password)).error_code
        await another.close()
    finally:
        for _, writer in half_open:
            writer.transport.abort()
    await client.close()
    for secret in (*PASSWORDS.values(), *OWN_USERS.values()):
        assert secret not in gateway.log()
