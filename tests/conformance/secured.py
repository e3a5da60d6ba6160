"""A pod and a broker with the same listener for clients: TLS, each mechanism, one user with a group of its own, and a
right that can be taken away."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import KafkaBroker
from tests.support.pod import SoloPod
from tests.support.scram import users_file
from tests.support.tokens import AUDIENCE, ISSUER, Provider, write_keys

from muster_coordinator.security.acls import Operation, PatternType, Permission, ResourceType
from muster_coordinator.security.scram import HASHES
from muster_coordinator.security.tls import TlsFiles

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""Of mechanisms with passwords."""
PASSWORD = "pencil"
AT_ONCE = {"connection.failed.authentication.delay.ms": "0"}
"""Failed logins are answered at once: there are many of one address."""
Allow = Callable[[bool], Awaitable[None]]
"""Gives alice the right to her group, or takes it away. What each server yields with its port."""


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


@asynccontextmanager
async def muster(c: Certified) -> AsyncIterator[tuple[int, Allow]]:
    users, acls = c.root / "users.json", c.root / "acls.json"
    users.write_text(users_file({"alice": PASSWORD}))
    right = {"principal": "User:alice", "operation": "READ", "resource": "TOPIC", "name": "t"}

    def write(*more: dict[str, str]) -> None:
        new = acls.with_suffix(".new")
        new.write_text(json.dumps({"acls": [right, *more]}))
        new.replace(acls)

    async def allow(allowed: bool) -> None:
        write(*((right | {"resource": "GROUP", "name": "mine"},) if allowed else ()))

    await allow(True)
    config = {
        **AT_ONCE,
        "muster.listener.tls.dir": str(c.tls.certificate.parent),
        "sasl.enabled.mechanisms": ",".join((*MODULES, "OAUTHBEARER")),
        "muster.users.file": str(users),
        "muster.acls.file": str(acls),
        "group.initial.rebalance.delay.ms": "0",
        **c.token_settings,
    }

    options = [f"{name}={value}" for name, value in config.items()]
    async with SoloPod(c.root / "muster" / "data", topics={"t": 1}, config=options) as pod:
        yield pod.kafka_port, allow


@asynccontextmanager
async def kafka(c: Certified) -> AsyncIterator[tuple[int, Allow]]:
    settings = {
        **AT_ONCE,
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

        async def give(kind: ResourceType, name: str) -> None:
            creation = create.AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
            await client.call(create.CreateAclsRequest(creations=(creation,)))

        async def allow(allowed: bool) -> None:
            if allowed:
                await give(ResourceType.GROUP, "mine")
                return
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

        await give(ResourceType.TOPIC, "t")
        await allow(True)
        yield broker.sasl_port, allow
        await client.close()
