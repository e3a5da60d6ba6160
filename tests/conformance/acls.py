"""The ACLs under which the scripts of `scripts/authorization.py` run, for both servers.

Everybody is `User:ANONYMOUS`. What has no ACL is open, so a name says by its start what one may do with it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.kafka import KafkaClient, schema

from muster_coordinator.security.acls import Operation, PatternType, Permission, ResourceType

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "transaction.partition.verification.enable": "false",  # offsets of transactions that no producer has begun
}
ME, NOBODY = "User:ANONYMOUS", "User:nobody"
SUPER_USERS = "super.users"
DEADLINE_S = 30.0


def _acl(resource: str, name: str, operation: str, principal: str = ME, **more: str) -> dict[str, str]:
    return {"resource": resource, "name": name, "operation": operation, "principal": principal} | more


PREFIXED = {"pattern": "PREFIXED"}
DENY = {"permission": "DENY"}
ACLS = [
    _acl("GROUP", "hidden-", "READ", NOBODY, **PREFIXED),
    _acl("GROUP", "elsewhere-", "ALL", host="10.1.2.3", **PREFIXED),
    _acl("GROUP", "described-", "DESCRIBE", **PREFIXED),
    _acl("GROUP", "read-", "READ", **PREFIXED),
    _acl("GROUP", "deleted-", "DELETE", **PREFIXED),
    _acl("GROUP", "configured-", "ALTER_CONFIGS", **PREFIXED),
    _acl("GROUP", "config-shown-", "DESCRIBE_CONFIGS", **PREFIXED),
    _acl("GROUP", "denied-", "ALL", "User:*", **PREFIXED),
    _acl("GROUP", "denied-", "READ", **PREFIXED, **DENY),
    _acl("TOPIC", "u", "DESCRIBE"),
    _acl("TOPIC", "topic.with-all_1", "READ", NOBODY),
    _acl("TOPIC", "hidden", "READ", NOBODY, **PREFIXED),
    _acl("TRANSACTIONAL_ID", "hidden-", "WRITE", NOBODY, **PREFIXED),
    _acl("TRANSACTIONAL_ID", "described-", "DESCRIBE", **PREFIXED),
    _acl("CLUSTER", "kafka-cluster", "ALL"),
    _acl("CLUSTER", "kafka-cluster", "DESCRIBE", **DENY),
    _acl("CLUSTER", "kafka-cluster", "DESCRIBE_CONFIGS", **DENY),
]
GROUPS = ("hidden", "elsewhere", "described", "read", "deleted", "denied", "open")


def write_none(path: Path) -> None:
    """The file for Muster as it starts: the names of what is hidden later have to be found out."""
    path.write_text(json.dumps({"acls": []}))


def write(path: Path) -> None:
    """The file for Muster."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"acls": ACLS}))
    new.replace(path)


async def create(port: int) -> None:
    """Give them to Kafka."""
    m = schema("create_acls", 3)
    client = await KafkaClient.connect(port)
    try:
        creations = tuple(
            m.AclCreation(
                resource_type=ResourceType[each["resource"]],
                resource_name=each["name"],
                resource_pattern_type=PatternType[each.get("pattern", "LITERAL")],
                principal=each["principal"],
                host=each.get("host", "*"),
                operation=Operation[each["operation"]],
                permission_type=Permission[each.get("permission", "ALLOW")],
            )
            for each in ACLS
        )
        answer = await client.call(m.CreateAclsRequest(creations=creations))
        assert {result.error_code for result in answer.results} == {0}, answer
    finally:
        await client.close()


async def wait_until_shown(port: int) -> None:
    """To a super user, to whom nothing else shows them."""
    client = await KafkaClient.connect(port)
    everything = schema("describe_acls", 3).DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            while sum(len(each.acls) for each in (await client.call(everything)).resources) != len(ACLS):
                await asyncio.sleep(0.05)
    finally:
        await client.close()


async def wait_until_in_force(port: int) -> None:
    client = await KafkaClient.connect(port)
    try:
        describe = schema("describe_cluster", 1).DescribeClusterRequest(include_cluster_authorized_operations=True)
        async with asyncio.timeout(DEADLINE_S):
            while (await client.call(describe)).cluster_authorized_operations != 0:
                await asyncio.sleep(0.05)
    finally:
        await client.close()
