"""A real Kafka broker with a listener of TLS and logins, its users, and a Muster pod that asks for the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.conformance import token_logins
from tests.support.certificates import Authority, pod
from tests.support.kafka_broker import MECHANISMS, KafkaBroker
from tests.support.pod import SoloPod
from tests.support.scram import users_file

from muster_coordinator.security.tls import TlsFiles

ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
PASSWORDS = {"alice": "pencil", "bob": "builder", "gateway": "wicket", "mirror": "glass"}
"""The passwords of Kafka's users; `gateway` and `mirror` are those of Muster."""
GUARDED, GUARDED_GROUPS = "guarded", "m-alice-"
"""A topic and, at Muster, groups that only alice may use."""
PARTITIONS = 5
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def account(directory: Path, name: str, password: str | None = None) -> Path:
    """The directory of an account of PASSWORDS, or with another password."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, content in (("username", name), ("password", password or PASSWORDS[name])):
        new = directory / f"{file}.new"
        new.write_text(f"{content}\n")
        new.replace(directory / file)
    return directory


def secured_broker(directory: Path, authority: Authority, topics: Mapping[str, int]) -> KafkaBroker:
    """A broker that is to be started; `create_users` comes after that."""
    directory.mkdir(parents=True, exist_ok=True)
    keys = token_logins.write(directory)[1]
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    settings = {
        MECHANISMS: ALL,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_PLAIN} {users};",
        "authorizer.class.name": _AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:gateway;User:mirror",
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.num.partitions": str(PARTITIONS),
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "of a test",
        **{name: value for name, value in token_logins.SETTINGS.items() if name != MECHANISMS},
        **token_logins.BROKER,
        **keys,
    }
    return KafkaBroker(directory / "kafka", settings, topics, tls=authority.write("broker", pod("pod-0")))


def create_users(broker: KafkaBroker) -> None:
    """The users of SCRAM, and what only alice may do."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        changes = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
            for name, password in PASSWORDS.items()
        ]
        for done in admin.alter_user_scram_credentials(changes).values():
            done.result(60)
    allowed = AclBinding(
        ResourceType.TOPIC,
        GUARDED,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for done in admin.create_acls([allowed]).values():
        done.result(60)


def secured_pod(directory: Path, tls: TlsFiles, *more: str) -> SoloPod:
    """It knows the gateway alone by a password, and lets it act for others."""
    directory.mkdir(parents=True, exist_ok=True)
    users, acls = directory / "users.json", directory / "acls.json"
    users.write_text(users_file({"gateway": PASSWORDS["gateway"]}))
    allow = {"operation": "ALL", "pattern": "PREFIXED"}
    allowed = [
        {"principal": "User:alice", "resource": "GROUP", "name": GUARDED_GROUPS, **allow},
        {"principal": "User:*", "resource": "GROUP", "name": "m-free-", **allow},
        {"principal": "User:gateway", "resource": "GROUP", "name": "*", "operation": "DESCRIBE"},
        {"principal": "User:*", "resource": "TOPIC", "name": "*", "operation": "ALL"},
    ]
    acls.write_text(json.dumps({"acls": allowed}))
    config = [
        f"muster.listener.tls.dir={tls.certificate.parent}",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        "muster.gateway.users=User:gateway",
        f"muster.users.file={users}",
        f"muster.acls.file={acls}",
        "group.initial.rebalance.delay.ms=0",
        *more,
    ]
    return SoloPod(directory / "data", PARTITIONS, config=config, any_topic=True)
