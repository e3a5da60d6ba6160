"""Kafka's own Java client over SASL_SSL, by each mechanism: Muster gives it what a Kafka broker with the same settings
gives, right and wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import KafkaBroker, java, why_no_kafka_yet
from tests.support.pod import SoloPod
from tests.support.scram import users_file

pytest.importorskip("jwt")

from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.tokens import AUDIENCE, ISSUER, Provider, write_keys

from muster_coordinator.security.acls import Operation, PatternType, Permission, ResourceType
from muster_coordinator.security.scram import HASHES
from muster_coordinator.security.tls import TlsFiles

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

SOURCE = Path(__file__).parents[1] / "support" / "SecuredClient.java"
TOKENS = "org.apache.kafka.common.security.oauthbearer"
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
PASSWORD = "pencil"
ANSWER_S = 60.0


class Certified:
    """What both servers are given, and the clients' files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tls: TlsFiles = Authority(root / "certificates").write("server", member("pod-0"))
        self.provider = Provider()
        self.keys = root / "keys.json"
        write_keys(self.keys, self.provider)
        self.tokens = {
            "good": self.provider.token(),
            "expired": self.provider.token(lifetime_s=-60, iat=1),
            "of_others": self.provider.token(aud="others"),
        }
        for name, token in self.tokens.items():
            (root / name).write_text(token)

    @property
    def token_settings(self) -> dict[str, str]:
        return {
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }

    def properties(self, name: str, port: int, mechanism: str, login: str, group: str = "mine") -> Path:
        lines = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": group,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.tls.authorities),
            "ssl.endpoint.identification.algorithm": "",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": login,
        }
        if mechanism == "OAUTHBEARER":
            lines["sasl.jaas.config"] = f"{TOKENS}.OAuthBearerLoginModule required;"
            lines["sasl.login.callback.handler.class"] = f"{TOKENS}.OAuthBearerLoginCallbackHandler"
            lines["sasl.oauthbearer.token.endpoint.url"] = (self.root / login).as_uri()
        file = self.root / f"{name}-{port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return file


def login(mechanism: str, user: str, password: str) -> str:
    return f'{MODULES[mechanism]} required username="{user}" password="{password}";'


class Java:
    """The client's process."""

    def __init__(self, certified: Certified) -> None:
        urls = ",".join((certified.root / name).as_uri() for name in certified.tokens)
        self._arguments = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}", str(SOURCE))
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Java:
        self._process = await asyncio.create_subprocess_exec(
            *java(*self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def outcome(self, line: str) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        async with asyncio.timeout(ANSWER_S):
            while True:
                said = (await self._process.stdout.readline()).decode()
                assert said, "the client ended"
                if said.startswith("OUTCOME "):
                    return said.removeprefix("OUTCOME ").strip()


@asynccontextmanager
async def muster(c: Certified) -> AsyncIterator[tuple[int, Any]]:
    """(port, a function that takes alice's right to the group away)."""
    users, acls = c.root / "users.json", c.root / "acls.json"
    users.write_text(users_file({"alice": PASSWORD}))
    right = {"principal": "User:alice", "operation": "READ", "resource": "TOPIC", "name": "t"}

    def write(*more: dict[str, str]) -> None:
        new = acls.with_suffix(".new")
        new.write_text(json.dumps({"acls": [right, *more]}))
        new.replace(acls)

    write(right | {"resource": "GROUP", "name": "mine"})
    config = {
        "muster.listener.tls.dir": str(c.tls.certificate.parent),
        "sasl.enabled.mechanisms": ",".join((*MODULES, "OAUTHBEARER")),
        "muster.users.file": str(users),
        "muster.acls.file": str(acls),
        "group.initial.rebalance.delay.ms": "0",
        **c.token_settings,
    }

    async def revoke() -> None:
        write()

    options = [f"{name}={value}" for name, value in config.items()]
    async with SoloPod(c.root / "muster" / "data", topics={"t": 1}, config=options) as pod:
        yield pod.kafka_port, revoke


@asynccontextmanager
async def kafka(c: Certified) -> AsyncIterator[tuple[int, Any]]:
    settings = {
        "sasl.enabled.mechanisms": ",".join((*MODULES, "OAUTHBEARER")),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULES["PLAIN"]} required user_alice="{PASSWORD}";',
        **c.token_settings,
    }
    async with KafkaBroker(c.root / "kafka", settings, {"t": 1}, tls=c.tls) as broker:
        client = await KafkaClient.connect(broker.port)
        users = schema("alter_user_scram_credentials", 0)
        create, delete = schema("create_acls", 3), schema("delete_acls", 3)
        for number, hash_name in enumerate(HASHES.values(), 1):
            upsertion = users.ScramCredentialUpsertion(
                name="alice",
                mechanism=number,
                iterations=4096,
                salt=b"salt of alice",
                salted_password=hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), b"salt of alice", 4096),
            )
            answer = await client.call(users.AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))
            assert not answer.results[0].error_code
        creations = tuple(
            create.AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
            for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.GROUP, "mine"))
        )
        await client.call(create.CreateAclsRequest(creations=creations))

        async def revoke() -> None:
            right = delete.DeleteAclsFilter(
                resource_type_filter=ResourceType.GROUP,
                resource_name_filter="mine",
                pattern_type_filter=PatternType.LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            await client.call(delete.DeleteAclsRequest(filters=(right,)))

        yield broker.sasl_port, revoke
        await client.close()


async def outcomes(c: Certified, port: int, revoke: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    async with Java(c) as client:

        async def attempt(name: str, mechanism: str, how: str, group: str = "mine") -> None:
            found[name] = await client.outcome(str(c.properties(name, port, mechanism, how, group)))

        await attempt("first", "PLAIN", login("PLAIN", "alice", PASSWORD))
        async with asyncio.timeout(ANSWER_S):  # Kafka's ACLs and users are in force a moment later
            while found["first"] != "committed":
                await attempt("first", "PLAIN", login("PLAIN", "alice", PASSWORD))
        for mechanism in MODULES:
            await attempt(f"right {mechanism}", mechanism, login(mechanism, "alice", PASSWORD))
            await attempt(f"wrong {mechanism}", mechanism, login(mechanism, "alice", "wrong"))
            await attempt(f"unknown {mechanism}", mechanism, login(mechanism, "nobody", PASSWORD))
        for name in c.tokens:
            await attempt(f"{name} token", "OAUTHBEARER", name)
        await attempt("group of others", "PLAIN", login("PLAIN", "alice", PASSWORD), "others")
        await attempt("before", "SCRAM-SHA-512", login("SCRAM-SHA-512", "alice", PASSWORD))
        await revoke()
        async with asyncio.timeout(ANSWER_S):
            while (after := await client.outcome("again")) == "committed":
                await asyncio.sleep(0.2)
        found["right taken away"] = after
    return found


async def test_java_client_gets_what_a_broker_gives_it(tmp_path: Path) -> None:
    certified = Certified(tmp_path)
    async with muster(certified) as (port, revoke):
        here = await outcomes(certified, port, revoke)
    async with kafka(certified) as (port, revoke):
        there = await outcomes(certified, port, revoke)
    assert here == there
    assert {name for name, outcome in here.items() if outcome == "committed"} == {
        "first",
        "before",
        "good token",
        *(f"right {mechanism}" for mechanism in MODULES),
    }
    assert here["right taken away"].startswith("GroupAuthorizationException")
    assert here["wrong PLAIN"].startswith("SaslAuthenticationException")
