"""The security of a CoordinatorCluster's listeners: what each asks of clients, and where users and ACLs come from."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SecretName = Annotated[str, Meta(min_length=1, max_length=253)]


class ListenerTls(msgspec.Struct, frozen=True, rename="camel"):
    """TLS of a listener: 1.2 and 1.3."""

    secret: Annotated[
        SecretName,
        Meta(
            description="Secret of type kubernetes.io/tls in the namespace of the cluster. A changed one counts for new"
            " connections; no pod restarts."
        ),
    ]
    client_auth: Annotated[
        Literal["none", "requested", "required"],
        Meta(
            description="Whether clients show a certificate that ca.crt of the Secret has signed. Without"
            " authentication its subject says who the client is."
        ),
    ] = "none"
    principal_mapping_rules: Annotated[
        str,
        Meta(max_length=1024, description="From the subject to a user: Kafka's ssl.principal.mapping.rules."),
    ] = "DEFAULT"


class ListenerAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """SASL of a listener: how its clients say who they are."""

    mechanisms: Annotated[
        tuple[Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"], ...],
        Meta(
            min_length=1,
            max_length=4,
            description="Those that clients may choose from. PLAIN and OAUTHBEARER need tls.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ]


class Access(msgspec.Struct, frozen=True, rename="camel"):
    """Users and ACLs of Kafka clients, for all listeners."""

    users_secret: Annotated[
        SecretName | None,
        Meta(
            description="Secret in the namespace of the cluster whose users.json has the users: `muster local user`"
            " writes it, without passwords. A changed one counts when the kubelet has brought it to the pods."
        ),
    ] = None
    acls_secret: Annotated[
        SecretName | None,
        Meta(
            description="Likewise, whose acls.json has the ACLs. If absent, everybody may do everything. super.users of"
            " the settings may, whatever they say."
        ),
    ] = None
    muster_users: Annotated[
        bool,
        Meta(
            description="Users and ACLs are the MusterUsers of this cluster, and nothing else: what changes is in force"
            " within a second. Not together with usersSecret and aclsSecret."
        ),
    ] = False
