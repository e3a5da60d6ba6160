"""Roles at the other end of a connection inside a cluster: the names that certificates carry (ADR 30).

    muster://<namespace>/<cluster>/operator
    muster://<namespace>/<cluster>/pod/<pod>
    muster://<namespace>/<cluster>/pod/*       whichever pod of the cluster: for pods that share a Secret
    muster://<namespace>/<cluster>/reader

One URI of this kind stands in the subject alternative names of a certificate. Cluster and role are part of the name, so
a certificate of another cluster or role does not fit, even where one CA has signed both.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from muster_coordinator.security.tls import Certificate, Check

SCHEME = "muster://"
ANY_POD = "*"
"""Stands where a pod's name would: the certificate is for every pod of its cluster."""


class Role(StrEnum):
    """`OPERATOR`: may do everything. `POD`: replication with the other pods. `READER`: may read status and segments."""

    OPERATOR = "operator"
    POD = "pod"
    READER = "reader"


@dataclass(frozen=True, slots=True)
class Member:
    """The owner of a certificate. `cluster`: `<namespace>/<name>`. `pod`: name or ANY_POD, of a pod only."""

    cluster: str
    role: Role
    pod: str = ""

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.cluster}/{self.role}" + (f"/{self.pod}" if self.pod else "")


def parse_member(uri: str) -> Member:
    """Raises ValueError."""
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or "" in parts or len(parts) not in (3, 4) or parts[2] not in set(Role):
        raise ValueError(f"{uri[:200]!r} is not of the form {SCHEME}<namespace>/<cluster>/<role>")
    role = Role(parts[2])
    if (role is Role.POD) != (len(parts) == 4):
        raise ValueError(f"{uri[:200]!r}: the name of a pod belongs to the role pod, and to no other")
    return Member(f"{parts[0]}/{parts[1]}", role, parts[3] if role is Role.POD else "")


def member_of(certificate: Certificate) -> Member:
    """The one that the certificate names. Raises ValueError if it names none, or several."""
    uris = [
        value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI" and value.startswith(SCHEME)
    ]
    if len(uris) != 1:
        raise ValueError(f"the certificate has {len(uris)} names {SCHEME}..., one is needed")
    return parse_member(uris[0])


def only(cluster: str, roles: Collection[Role]) -> Check:
    """Admits members of `cluster` with one of `roles`; of a dialled pod only the one of the name that was dialled."""

    def check(certificate: Certificate, dialled: str) -> None:
        try:
            member = member_of(certificate)
        except ValueError as error:
            raise ssl.SSLCertVerificationError(str(error)) from None
        if member.cluster != cluster:
            raise ssl.SSLCertVerificationError(f"{member.uri} is not of cluster {cluster}")
        if member.role not in roles:
            raise ssl.SSLCertVerificationError(f"{member.uri} has no business here: {' or '.join(roles)} is needed")
        if dialled and member.pod not in (dialled, ANY_POD):
            raise ssl.SSLCertVerificationError(f"{member.uri} answers where pod {dialled} was called")

    return check
