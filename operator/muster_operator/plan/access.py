"""The access that pods are to have, from MusterUsers: users with SCRAM credentials, and ACLs (ADR 38). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from muster_coordinator.podapi.users import AccessImage
from muster_coordinator.security.acl_file import AclEntry, acls_of
from muster_coordinator.security.acls import CLUSTER_NAME
from muster_coordinator.security.quotas import Quotas
from muster_operator.api.conditions import Reason
from muster_operator.api.models import MusterUser
from muster_operator.api.user import UserQuotas

Trouble = tuple[Reason, str]
Credentials = Mapping[str, str]
"""The credentials of one user: SCRAM mechanism -> credential, as Kafka writes it."""


@dataclass(frozen=True)
class AccessState:
    """The access that pods are to have. `trouble`: why a MusterUser is not in force, or its password not kept, by its
    name.
    """

    image: AccessImage
    trouble: Mapping[str, Trouble]

    @cached_property
    def fingerprint(self) -> str:
        return self.image.fingerprint


def access_of(
    users: Sequence[MusterUser], credentials: Mapping[str, Credentials], kept: Mapping[str, Trouble]
) -> AccessState:
    """`credentials` of those users that have some yet, `kept`: what is wrong with them; both by the name of the
    MusterUser. A user whose ACLs cannot be taken is not in force at all: one of them may be a denial."""
    known: dict[str, dict[str, str]] = {}
    external: list[str] = []
    quotas: dict[str, Quotas] = {}
    acls: list[AclEntry] = []
    trouble = {**kept}
    owners: dict[str, str] = {}
    for user in _oldest_first(users):
        name = user.metadata.name
        owner = owners.setdefault(user.username, name)
        if owner != name:
            trouble[name] = Reason.NAME_TAKEN, f"MusterUser {owner} is older, and is user {user.username} already"
            continue
        entries = list(_entries(user))
        try:
            acls_of(entries)
        except ValueError as error:
            trouble[name] = Reason.INVALID_ACLS, f"{error}; nothing of this user is in force"
            continue
        acls += entries
        if user.has_password and name in credentials:
            known[user.username] = dict(credentials[name])
        elif not user.has_password:
            external.append(user.username)
        if user.spec.quotas != UserQuotas():
            quotas[user.username] = Quotas(user.spec.quotas.connections, user.spec.quotas.request_rate)
    return AccessState(AccessImage(known, tuple(acls), tuple(sorted(external)), quotas), trouble)


def _oldest_first(users: Iterable[MusterUser]) -> list[MusterUser]:
    return sorted(users, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))


def _entries(user: MusterUser) -> Iterator[AclEntry]:
    for acl in user.spec.acls:
        for operation in acl.operations:
            yield AclEntry(
                f"User:{user.username}",
                operation,
                acl.resource,
                acl.name or CLUSTER_NAME,
                acl.pattern,
                acl.permission,
                acl.host,
            )
