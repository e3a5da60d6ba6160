"""Users and ACLs that an operator gives to a real pod: in force when the call returns, and after a restart."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from tests.support.certificates import Authority, unchecked_context
from tests.support.certificates import pod as member
from tests.support.kafka import KafkaClient, commit_request, schema
from tests.support.pod import SoloPod
from tests.support.scram import log_in, users_file
from tests.support.tokens import AUDIENCE, Provider, first_message, write_keys

from muster_coordinator.listener.user_load import BURST_WINDOWS
from muster_coordinator.podapi.client import PodRefusedError
from muster_coordinator.podapi.models import PodStatus
from muster_coordinator.podapi.users import AccessImage, AccessRequest
from muster_coordinator.security.acl_file import AclEntry
from muster_coordinator.security.quotas import Quotas

pytestmark = pytest.mark.integration

AUTHENTICATION_FAILED, GROUP_AUTHORIZATION_FAILED = 58, 30
PASSWORDS = {"alice": "pencil", "bob": "builder"}
EVERY_GROUP = AclEntry("User:*", "READ", "GROUP", "*")
EVERY_TOPIC = AclEntry("User:*", "READ", "TOPIC", "*")


def access(passwords: dict[str, str], *acls: AclEntry) -> AccessImage:
    return AccessImage(json.loads(users_file(passwords))["users"], acls)


BOTH = access(PASSWORDS, EVERY_GROUP, EVERY_TOPIC)


@pytest_asyncio.fixture
async def pod(tmp_path: Path) -> AsyncIterator[SoloPod]:
    config = (
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        "muster.access.from.operator=true",
        "connection.failed.authentication.delay.ms=0",
    )
    async with SoloPod(tmp_path / "data", config=config) as pod:
        yield pod


async def give(pod: SoloPod, image: AccessImage, token: int = 1) -> str:
    return (await pod.api.give_access(AccessRequest(token, image))).fingerprint


async def code_of_login(pod: SoloPod, user: str) -> int:
    client = await pod.client()
    answer = await log_in(client, user, PASSWORDS[user])
    await client.close()
    return int(answer.error_code)


async def test_nobody_is_known_until_the_operator_has_given_users(pod: SoloPod) -> None:
    assert (await pod.api.status()).access == ""
    assert await code_of_login(pod, "alice") == AUTHENTICATION_FAILED
    assert await give(pod, BOTH) == BOTH.fingerprint
    assert await code_of_login(pod, "alice") == 0
    assert (await pod.api.status()).access == BOTH.fingerprint


async def test_removed_user_and_right_are_gone_on_open_connections_when_the_call_returns(pod: SoloPod) -> None:
    await give(pod, BOTH)
    alice, bob = await logged_in(pod, "alice"), await logged_in(pod, "bob")
    assert [await each.commit("g", 5) for each in (alice, bob)] == [0, 0]
    await give(pod, access({"bob": "builder"}, EVERY_TOPIC))
    assert await pod.metric("muster_connection_errors_total", reason="user_removed") == 1
    assert await bob.commit("g", 6) == GROUP_AUTHORIZATION_FAILED
    assert await alice.reader.read() == b""  # closed
    await bob.close()


async def logged_in(pod: SoloPod, user: str) -> KafkaClient:
    client = await pod.client()
    assert (await log_in(client, user, PASSWORDS[user])).error_code == 0
    return client


@pytest_asyncio.fixture
async def by_certificate(tmp_path: Path) -> AsyncIterator[tuple[SoloPod, Authority]]:
    authority = Authority(tmp_path / "certificates")
    server = authority.write("server", member("pod-0"))
    config = (
        f"muster.listener.tls.dir={server.certificate.parent}",
        "ssl.client.auth=required",
        "muster.access.from.operator=true",
    )
    async with SoloPod(tmp_path / "data", config=config) as pod:
        yield pod, authority


async def test_removed_user_of_a_certificate_is_out_when_the_call_returns(
    by_certificate: tuple[SoloPod, Authority],
) -> None:
    pod, authority = by_certificate

    async def connected(name: str) -> KafkaClient:
        context = unchecked_context(authority.write(name, member(name)))
        return KafkaClient(*await asyncio.open_connection("127.0.0.1", pod.kafka_port, ssl=context))

    both = AccessImage(acls=(EVERY_GROUP, EVERY_TOPIC), external=("CN=alice", "CN=bob"))
    await give(pod, both)
    alice, bob, nobodys = [await connected(name) for name in ("alice", "bob", "carol")]
    assert [await each.commit("g", 5) for each in (alice, bob, nobodys)] == [0, 0, 0]
    await give(pod, msgspec.structs.replace(both, external=("CN=bob",)))
    assert await alice.reader.read() == b""  # closed
    assert await pod.metric("muster_connection_errors_total", reason="user_removed") == 1
    assert [await each.commit("g", 6) for each in (bob, nobodys)] == [0, 0], "who was never declared is as before"
    for each in (bob, nobodys):
        await each.close()


async def test_removed_user_of_a_token_is_out_when_the_call_returns(tmp_path: Path) -> None:
    authority, provider = Authority(tmp_path / "certificates"), Provider()
    write_keys(tmp_path / "keys.json", provider)
    server = authority.write("server", member("pod-0"))
    config = (
        f"muster.listener.tls.dir={server.certificate.parent}",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url={(tmp_path / 'keys.json').as_uri()}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        "muster.access.from.operator=true",
    )
    async with SoloPod(tmp_path / "data", config=config) as pod:
        image = AccessImage(acls=(EVERY_GROUP, EVERY_TOPIC), external=("alice",))
        await give(pod, image)
        client = await KafkaClient.connect(pod.kafka_port, tls=unchecked_context(None))
        await client.call(schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="OAUTHBEARER"))
        token = first_message(provider.token("alice"))
        answer = await client.call(schema("sasl_authenticate", 2).SaslAuthenticateRequest(auth_bytes=token))
        assert answer.error_code == 0
        assert await client.commit("g", 5) == 0
        await give(pod, msgspec.structs.replace(image, external=()))
        assert await client.reader.read() == b""  # closed


async def test_quotas_are_in_force_when_the_call_returns_and_after_a_restart(pod: SoloPod) -> None:
    await give(pod, BOTH)
    alice, second = await logged_in(pod, "alice"), await logged_in(pod, "alice")
    await give(pod, msgspec.structs.replace(BOTH, quotas={"alice": Quotas(connections=1, request_rate=1)}))
    for offset in range(BURST_WINDOWS):
        assert await alice.commit("g", offset) == 0
    assert (await alice.call(commit_request("g", [("t", 0, 1)]))).throttle_time
    third = await logged_in(pod, "alice")
    assert await third.reader.read() == b"", "one too many; those that were open stay"
    assert (await second.call(commit_request("g", [("t", 0, 1)]))).throttle_time
    pod.kill()
    await pod.start()
    alice, second = await logged_in(pod, "alice"), await logged_in(pod, "alice")
    assert await second.reader.read() == b""
    await alice.close()


async def test_pod_that_restarts_has_what_it_was_given_last(pod: SoloPod) -> None:
    await give(pod, access(PASSWORDS))
    await give(pod, access({"bob": "builder"}, EVERY_GROUP, EVERY_TOPIC))
    kept = pod.data_dir / "access.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    pod.kill()
    await pod.start()
    assert await code_of_login(pod, "alice") == AUTHENTICATION_FAILED
    bob = await logged_in(pod, "bob")
    assert await bob.commit("g", 5) == 0
    await bob.close()


async def test_file_that_cannot_be_read_lets_nobody_in_until_it_is_given_again(pod: SoloPod) -> None:
    await give(pod, BOTH)
    pod.kill()
    (pod.data_dir / "access.json").write_text("{")
    await pod.start()
    assert (await pod.api.status()).access == ""
    assert await code_of_login(pod, "alice") == AUTHENTICATION_FAILED
    await give(pod, BOTH)
    assert await code_of_login(pod, "alice") == 0


async def test_what_is_wrong_or_of_an_operator_that_was_replaced_changes_nothing(pod: SoloPod) -> None:
    await give(pod, BOTH, token=2)
    wrong = access({}, AclEntry("alice", "READ", "GROUP", "g"))
    for image, token, status in ((wrong, 2, 400), (access({}), 1, 409)):
        with pytest.raises(PodRefusedError) as refused:
            await give(pod, image, token)
        assert refused.value.status == status
    assert await code_of_login(pod, "alice") == 0
    assert (await pod.api.status()).access == BOTH.fingerprint


async def test_nothing_secret_is_told_back(pod: SoloPod) -> None:
    await give(pod, BOTH)
    secrets = [text.split(",")[1] for each in BOTH.users.values() for text in each.values()]
    async with aiohttp.ClientSession() as session:
        refused = await session.get(f"http://{pod.api.address}/v1/access")
    assert refused.status == 405
    told = pod.log() + json.dumps(msgspec.to_builtins(await pod.api.status()))
    told += (await pod.api.read("/metrics", {})).decode()
    assert not [each for each in secrets if each in told]


async def test_pod_with_files_of_its_own_takes_none(tmp_path: Path) -> None:
    acls = tmp_path / "acls.json"
    acls.write_text('{"acls": []}')
    async with SoloPod(tmp_path / "data", config=[f"muster.acls.file={acls}"]) as pod:
        status: PodStatus = await pod.api.status()
        assert status.access is None
        with pytest.raises(PodRefusedError) as refused:
            await give(pod, BOTH)
        assert refused.value.status == 404


def test_fingerprint_is_that_of_the_content_and_not_of_its_order() -> None:
    other = AccessImage(dict(reversed(BOTH.users.items())), BOTH.acls[::-1], ("a", "b"))
    assert other.fingerprint != BOTH.fingerprint
    assert other.fingerprint == msgspec.structs.replace(BOTH, external=("b", "a")).fingerprint
    assert msgspec.structs.replace(BOTH, quotas={"alice": Quotas(1)}).fingerprint != BOTH.fingerprint
    assert access(PASSWORDS, EVERY_GROUP).fingerprint != BOTH.fingerprint
