"""Requests of administrators about ACLs and credentials: what is in force is told, and changed in its file only
(ADR 36).

Source: org.apache.kafka.server.AclApis, org.apache.kafka.image.ScramImage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.handlers.acl_filter import selects
from muster_coordinator.listener.handlers.stepwise import make_each
from muster_coordinator.requests import security as s
from muster_coordinator.security.acls import Acl
from muster_coordinator.security.users import Users

SCRAM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's codes (ScramMechanism)."""

_DISABLED = ErrorCode.SECURITY_DISABLED


class SecurityHandlers:
    """`acls` gives those in force; None: nobody is asked what clients may do. `users`: None: there is no file of users.
    `acls_file`, `users_file`: where they are changed, for people; `from_operator`: as MusterUsers."""

    def __init__(
        self,
        acls: Callable[[], tuple[Acl, ...]] | None = None,
        users: Callable[[], Users] | None = None,
        acls_file: str = "",
        users_file: str = "",
        *,
        from_operator: bool = False,
    ) -> None:
        self._acls = acls
        self._users = users or Users
        self._acls_file = acls_file
        self._users_file = users_file
        self._from_operator = from_operator

    def describe_acls(self, request: s.DescribeAclsRequest, exchange: ClientAnswer) -> None:
        if self._acls is None:
            exchange.answer(s.DescribeAclsResponse(_DISABLED, "No Authorizer is configured on the broker"))
            return
        found = sorted({_binding(acl) for acl in self._acls() if selects(request.filter, acl)}, key=_place)
        exchange.answer(s.DescribeAclsResponse(acls=tuple(found)))

    def create_acls(self, request: s.CreateAclsRequest, exchange: ClientAnswer) -> None:
        """A change that is in force already is a success, as in Kafka."""
        present = None if self._acls is None else {_binding(acl) for acl in self._acls()}
        make_each(
            request.creations,
            lambda each: s.AclChange(0, "") if present is not None and each in present else self._refused(present),
            lambda results: exchange.answer(s.CreateAclsResponse(results)),
        )

    def delete_acls(self, request: s.DeleteAclsRequest, exchange: ClientAnswer) -> None:
        """A filter that selects nothing is a success, as in Kafka."""
        present = None if self._acls is None else self._acls()

        def deleted(each: s.AclFilter) -> s.AclChange:
            in_vain = present is not None and not any(selects(each, acl) for acl in present)
            return s.AclChange() if in_vain else self._refused(present)

        make_each(request.filters, deleted, lambda results: exchange.answer(s.DeleteAclsResponse(results)))

    def _refused(self, present: object) -> s.AclChange:
        if present is None:
            return s.AclChange(_DISABLED, "No Authorizer is configured.")
        if self._from_operator:
            return s.AclChange(ErrorCode.POLICY_VIOLATION, f"ACLs are {_MUSTER_USERS}")
        text = f"ACLs are kept in the pods' file {self._acls_file}: change it there ({_ON_KUBERNETES}.aclsSecret)."
        return s.AclChange(ErrorCode.POLICY_VIOLATION, text)

    def describe_quotas(self, request: s.DescribeClientQuotasRequest, exchange: ClientAnswer) -> None:
        exchange.answer(s.DescribeClientQuotasResponse())

    def describe_users(self, request: s.DescribeUserScramCredentialsRequest, exchange: ClientAnswer) -> None:
        users = self._users()
        asked = Counter(request.users or sorted(users.names()))
        make_each(
            tuple(asked),
            lambda name: self._described(users, name, asked[name] > 1),
            lambda results: exchange.answer(s.DescribeUserScramCredentialsResponse(results=results)),
        )

    def _described(self, users: Users, name: str, twice: bool) -> s.UserCredentials:
        if twice:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            return s.UserCredentials(name, ErrorCode.DUPLICATE_RESOURCE, text)
        if name not in users:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            return s.UserCredentials(name, ErrorCode.RESOURCE_NOT_FOUND, text)
        found = [(SCRAM_CODES[mechanism], iterations) for mechanism, iterations in users.iterations(name).items()]
        return s.UserCredentials(name, credentials=tuple(sorted(found)))

    def alter_users(self, request: s.AlterUserScramCredentialsRequest, exchange: ClientAnswer) -> None:
        where = f"the pods' file {self._users_file}" if self._users_file else "a file, muster.users.file"
        text = f"Users are kept in {where}: change them there ({_ON_KUBERNETES}.usersSecret)."
        if self._from_operator:
            text = f"Users are {_MUSTER_USERS}"
        make_each(
            request.users,
            lambda name: s.UserCredentials(name, ErrorCode.POLICY_VIOLATION, text),
            lambda results: exchange.answer(s.AlterUserScramCredentialsResponse(results)),
        )


_MUSTER_USERS = "kept as MusterUsers of Kubernetes: change them there (kubectl get musterusers)."
_ON_KUBERNETES = "on Kubernetes: the Secret that the CoordinatorCluster names in spec.access"


def _binding(acl: Acl) -> s.AclBinding:
    return s.AclBinding(
        int(acl.resource_type),
        acl.name,
        int(acl.pattern),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission),
    )


def _place(acl: s.AclBinding) -> tuple[int, str, int, str, str, int, int]:
    """Those of one resource and pattern stand together."""
    return acl.resource_type, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
