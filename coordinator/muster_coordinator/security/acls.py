"""Kafka's model of ACLs and how it decides by them. Pure; replaced as a whole when ACLs change.

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizerData (Kafka 4.3). In the order of what counts: a super
user may do everything; an ACL that denies; an ACL that allows; without any ACL for the resource what
`allow.everyone.if.no.acl.found` says; else no.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from muster_coordinator.security.identity import Identity


class ResourceType(IntEnum):
    """Kafka's codes (ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """Kafka's codes (AclOperation): the bit of an operation among authorized operations (KIP-430)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class PatternType(IntEnum):
    """Kafka's codes (PatternType)."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's codes (AclPermissionType)."""

    DENY = 2
    ALLOW = 3


WILDCARD = "*"
"""Every resource of the type, where it is a literal name; every host, where it is a host."""
EVERYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER (Kafka: Resource.CLUSTER_NAME)."""

_IMPLIES = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""Operation -> those whose permission is one for it, too. Only a permission: a denied READ denies no DESCRIBE."""

SUPPORTED = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.ALTER,
        Operation.IDEMPOTENT_WRITE,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
}
"""The operations on a resource of each type (AclEntry#supportedOperations)."""


@dataclass(frozen=True, slots=True)
class Acl:
    """One ACL. `principal`: `User:<name>` or `User:*`. `host`: as `identity.normal_host` writes it, or `*`."""

    resource_type: ResourceType
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


class Authorizer:
    """Decides by a fixed set of ACLs, `acls`. `super_users` are principals."""

    def __init__(
        self, acls: Iterable[Acl], super_users: frozenset[str] = frozenset(), *, allow_without_acl: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        self.acls = tuple(acls)
        for acl in self.acls:
            patterns = self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal
            patterns.setdefault((acl.resource_type, acl.name), []).append(acl)
        self._prefix_lengths = sorted({len(name) for _, name in self._prefixed})

    def allows(self, who: Identity, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True if `who` may do this one thing."""
        if who.principal in self._super_users:
            return True
        found = allowed = False
        for acl in self._of(resource_type, name):
            found = True
            if acl.principal not in (who.principal, EVERYBODY) or acl.host not in (WILDCARD, who.host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (Operation.ALL, operation):
                    return False
            elif acl.operation is Operation.ALL or acl.operation in _IMPLIES.get(operation, (operation,)):
                allowed = True
        return allowed if found else self._allow_without_acl

    def operations(self, who: Identity, resource_type: ResourceType, name: str) -> int:
        """Everything that `who` may do with the resource, as bits (KIP-430)."""
        return sum(1 << each for each in SUPPORTED[resource_type] if self.allows(who, each, resource_type, name))

    def _of(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """The ACLs whose pattern matches the resource."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._prefix_lengths:
            if length > len(name):
                return
            yield from self._prefixed.get((resource_type, name[:length]), ())
