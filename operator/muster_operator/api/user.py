"""The MusterUser: a Kafka client of one cluster, with a password, ACLs and quotas."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.listener_security import SecretName
from muster_operator.api.meta import ClusterRef, Conditions, Generation, ObjectMeta, rules

USER_NAME_LIMIT = 63

AclOperation = Literal[
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "ALL",
]


class UserAcl(msgspec.Struct, frozen=True, rename="camel"):
    """A permission or denial for one resource, or for those whose names begin so, in Kafka's words."""

    operations: Annotated[
        tuple[AclOperation, ...],
        Meta(
            min_length=1,
            max_length=11,
            description="What it may do. READ, WRITE, DELETE and ALTER are permission to DESCRIBE.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ]
    resource: Annotated[
        Literal["GROUP", "TOPIC", "TRANSACTIONAL_ID", "CLUSTER"], Meta(description="With what kind of thing.")
    ]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=249)] | None,
        Meta(description="Its name, the start of its name (PREFIXED), or * for all. The cluster needs none."),
    ] = None
    pattern: Annotated[Literal["LITERAL", "PREFIXED"], Meta(description="What name is.")] = "LITERAL"
    permission: Annotated[Literal["ALLOW", "DENY"], Meta(description="A denial counts more than any permission.")] = (
        "ALLOW"
    )
    host: Annotated[
        str,
        Meta(pattern=r"^(\*|[0-9a-fA-F:.]+)$", max_length=45, description="IP address of the client; * is any."),
    ] = "*"


class UserAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """The credentials of the user."""

    type: Annotated[
        Literal["Password", "External"],
        Meta(
            description="Password: SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN, as the listeners have them. External: by a"
            " certificate or a token of somebody else; only the ACLs are kept here."
        ),
    ] = "Password"
    secret: Annotated[
        SecretName | None,
        Meta(
            description="Password only: a Secret in this namespace whose key password has it; the operator needs the"
            " right to get it (operator.secrets of the chart). If absent, the operator makes a password, and the Secret"
            " NAME-muster-user with username and password."
        ),
    ] = None


class UserQuotas(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The user's quotas at each pod, as Kafka's are at each broker."""

    connections: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(description="Connections at a time; one more is closed. Absent: muster.max.connections.per.user."),
    ] = None
    request_rate: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(
            description="Requests per second. One above it is answered with throttle_time_ms, and its connection is"
            " not read for that time (KIP-219). Absent: as many as there come."
        ),
    ] = None


class MusterUserSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A Kafka client of one CoordinatorCluster that has spec.access.musterUsers."""

    cluster_ref: Annotated[
        ClusterRef,
        Meta(extra_json_schema=rules(("self == oldSelf", "clusterRef is immutable: make another MusterUser"))),
    ]
    username: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(
            description="The user that Kafka clients are, if it is another word than the name of this resource, such as"
            " CN=billing,OU=teams. Of two resources with the same one the older counts."
        ),
    ] = None
    authentication: Annotated[
        UserAuthentication,
        Meta(
            extra_json_schema=rules(
                ("self.type == 'Password' || !has(self.secret)", "secret is of type Password"),
            )
        ),
    ] = UserAuthentication()
    acls: Annotated[
        tuple[UserAcl, ...],
        Meta(
            max_length=200,
            description="What the user may do. Nothing else is allowed.",
            extra_json_schema=rules(
                (
                    "self.all(each, has(each.name) ? each.resource != 'CLUSTER' || each.name == 'kafka-cluster'"
                    " : each.resource == 'CLUSTER')",
                    "a name is needed, but for the CLUSTER, which is called kafka-cluster",
                ),
                (
                    "self.all(each, each.resource != 'CLUSTER' || each.pattern == 'LITERAL')",
                    "the CLUSTER has a LITERAL pattern",
                ),
            ),
        ),
    ] = ()
    quotas: Annotated[UserQuotas, Meta(description="What it may take of each pod.")] = UserQuotas()
    reclaim_policy: Annotated[
        Literal["Delete", "Retain"],
        Meta(
            description="What becomes of the password that the operator has made, and of its Secret, when this"
            " resource is deleted; the user is out either way. Delete: both go. Retain: both stay, and a MusterUser of"
            " the same name gets the same password."
        ),
    ] = "Delete"


class MusterUserStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The parts of the user that are in force."""

    observed_generation: Generation = 0
    conditions: Conditions = ()
    username: Annotated[str, Meta(description="The user that Kafka clients are: an ACL's User:USERNAME.")] = ""
    secret: Annotated[str, Meta(description="Secret that has the password.")] = ""
    acls: Annotated[
        int, Meta(ge=0, description="ACLs that are in force on all pods, one for each operation; 0 until then.")
    ] = 0
    quotas: Annotated[UserQuotas, Meta(description="Quotas that are in force on all pods.")] = UserQuotas()


class MusterUser(msgspec.Struct, frozen=True, rename="camel"):
    """A Kafka client: who it is, and what it may do."""

    plural: ClassVar[str] = "musterusers"

    metadata: ObjectMeta
    spec: MusterUserSpec
    status: MusterUserStatus = MusterUserStatus()

    @property
    def username(self) -> str:
        return self.spec.username or self.metadata.name

    @property
    def has_password(self) -> bool:
        return self.spec.authentication.type == "Password"

    @property
    def has_own_password(self) -> bool:
        """One that the operator makes."""
        return self.has_password and self.spec.authentication.secret is None

    @property
    def is_retained(self) -> bool:
        """Its password stays when it is deleted."""
        return self.has_own_password and self.spec.reclaim_policy == "Retain"

    @property
    def secret(self) -> str:
        """The Secret that has its password; "" if it has none."""
        if not self.has_password:
            return ""
        return self.spec.authentication.secret or f"{self.metadata.name}-muster-user"
