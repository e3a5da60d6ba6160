"""The identities and rights of Kafka clients, from settings and files."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from muster_coordinator.listener.access.table import guarded_table
from muster_coordinator.listener.audit import AuditLog
from muster_coordinator.listener.connection import peer_host
from muster_coordinator.listener.handlers.security import SecurityHandlers
from muster_coordinator.listener.listener import ListenerSecurity
from muster_coordinator.listener.sasl import Sasl
from muster_coordinator.listener.state import Handler
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.given_access import GivenAccess
from muster_coordinator.process.ports import InnerPorts
from muster_coordinator.security.acl_file import parse_acls
from muster_coordinator.security.acls import Acl, Authorizer
from muster_coordinator.security.identity import ANONYMOUS, Identity, parse_principals
from muster_coordinator.security.principal_mapping import distinguished_name, parse_mapping
from muster_coordinator.security.quotas import NO_QUOTAS, Quotas
from muster_coordinator.security.tls import Tls, TlsFiles, server_context
from muster_coordinator.security.users import OAUTHBEARER, PLAIN, Users, parse_mechanisms, parse_users
from muster_coordinator.security.watched_file import SecurityFileError, WatchedFile
from muster_coordinator.settings import (
    AccessSettings,
    CoordinatorSettings,
    ListenerSecuritySettings,
    SaslSettings,
    TlsSettings,
)
from muster_coordinator.shard.ports import Clock

if TYPE_CHECKING:
    from muster_coordinator.process.token_logins import TokenLogins

_T = TypeVar("_T")
_Value = TypeVar("_Value", covariant=True)


class Current(Protocol[_Value]):
    """The users and ACLs that are in force now: from a file, or as the operator gave it."""

    @property
    def value(self) -> _Value: ...

    def look(self) -> bool:
        """True if the value has changed since the last look."""
        ...


_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ClientAccess:
    """`security` is for each listener, by name ("": the first). Implements `listener.Known`."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        listeners: Iterable[str],
        view: ClusterView,
        clock: Clock,
        given: GivenAccess | None = None,
    ) -> None:
        """Reads the files. Raises SecurityFileError, TlsError. `given`: what the operator gives in their place."""
        self._view = view
        if given is not None and (settings.access.acls_file or settings.sasl.users_file):
            raise SecurityFileError("muster.access.from.operator and files of users or ACLs exclude each other")
        self.given = given
        by_name = {name: settings.of_listener(name) for name in listeners}
        mechanisms = {each for one in by_name.values() for each in parse_mechanisms(one.sasl.sasl_enabled_mechanisms)}
        self._acls: Current[Authorizer] | None
        self._users: Current[Users] | None
        if given is not None:
            self._acls, self._users = given.acls, given.users
        else:
            self._acls = _acls(settings)
            has_users = mechanisms - {OAUTHBEARER} or settings.sasl.users_file  # quotas are of all
            self._users = _users(settings.sasl) if has_users else None
        self._tokens = _tokens(settings) if OAUTHBEARER in mechanisms else None
        self._tls: list[Tls] = []
        self.security: dict[str, ListenerSecurity] = {}
        for name, one in by_name.items():
            try:
                self.security[name] = self._security(one, clock)
            except SecurityFileError as error:
                raise SecurityFileError(f"listener {name}: {error}" if name else str(error)) from None

    async def start(self) -> None:
        """Starts before clients come."""
        if self._tokens is not None:
            await self._tokens.start()

    async def stop(self) -> None:
        if self._tokens is not None:
            await self._tokens.stop()

    def guard(self, handlers: Mapping[type, Handler], audit: AuditLog) -> Mapping[type, Handler]:
        """The handlers behind the checks of what clients may do. Without a file of ACLs as they are: nothing is asked
        on the way of a request."""
        acls = self._acls
        if acls is None:
            return handlers
        return guarded_table(handlers, lambda: acls.value, self._view.name_of, audit)

    def shown(self, settings: CoordinatorSettings) -> SecurityHandlers:
        """The users and ACLs as administrators see them."""
        acls, users = self._acls, self._users
        return SecurityHandlers(
            (lambda: acls.value.acls) if acls is not None else None,
            (lambda: users.value) if users is not None else None,
            settings.access.acls_file,
            settings.sasl.users_file,
            from_operator=self.given is not None,
        )

    def knows(self, identity: Identity) -> bool:
        """True if the user still exists. Who came by a token or a certificate is known to somebody else: it is out
        if it was an operator's user, and was taken away. Of a client of a gateway the gateway's user is asked for."""
        name = identity.by or identity.principal.removeprefix("User:")
        if self._users is None or identity.mechanism in ("", OAUTHBEARER):
            return self.given is None or name not in self.given.gone
        return name in self._users.value

    def quotas_of(self, principal: str) -> Quotas:
        return NO_QUOTAS if self._users is None else self._users.value.quotas(principal.removeprefix("User:"))

    def look(self) -> bool:
        if self._acls is not None:
            self._acls.look()
        for each in self._tls:
            each.look()
        if self._tokens is not None:
            self._tokens.look()
        return self._users is not None and self._users.look()

    def _security(self, settings: ListenerSecuritySettings, clock: Clock) -> ListenerSecurity:
        tls = _tls(settings.tls)
        if tls is not None:
            self._tls.append(tls)
        mapping = parse_mapping(settings.tls.ssl_principal_mapping_rules)

        def identity_of(transport: asyncio.BaseTransport) -> Identity:
            """A client without a certificate is anonymous, as in Kafka (DefaultKafkaPrincipalBuilder)."""
            certificate = transport.get_extra_info("peercert")
            principal = f"User:{mapping(distinguished_name(certificate))}" if certificate else ANONYMOUS
            return Identity(principal, peer_host(transport))

        return ListenerSecurity(tls, self._sasl(settings, clock), identity_of)

    def _sasl(self, settings: ListenerSecuritySettings, clock: Clock) -> Sasl | None:
        mechanisms = parse_mechanisms(settings.sasl.sasl_enabled_mechanisms)
        if not mechanisms:
            return None
        for name, sent in ((PLAIN, "passwords"), (OAUTHBEARER, "tokens")):
            if name in mechanisms and not settings.tls.listener_tls_dir:
                text = f"{name} sends {sent} as they are, and there is no TLS"
                raise SecurityFileError(f"sasl.enabled.mechanisms: {text}")
        users, tokens = self._users, self._tokens
        return Sasl(
            settings.sasl,
            (lambda: users.value) if users is not None else Users,
            clock,
            tokens.login if tokens is not None else None,
        )


class WatchedFiles:
    """Those of all ports, looked at together. Implements `listener.Known`."""

    def __init__(self, ports: InnerPorts, access: ClientAccess) -> None:
        self._ports = ports
        self._access = access

    def look(self) -> bool:
        self._ports.look()
        return self._access.look()

    def knows(self, identity: Identity) -> bool:
        return self._access.knows(identity)

    def quotas_of(self, principal: str) -> Quotas:
        return self._access.quotas_of(principal)


def given_access(settings: CoordinatorSettings, data_dir: Path) -> GivenAccess | None:
    """The access that the operator has given, if it gives any."""
    if not settings.access.access_from_operator:
        return None
    given = GivenAccess(data_dir, partial(_authorizer, settings.access))
    given.load()
    return given


def _authorizer(access: AccessSettings, acls: tuple[Acl, ...]) -> Authorizer:
    supers = parse_principals(access.super_users)
    return Authorizer(acls, supers, allow_without_acl=access.allow_everyone_if_no_acl_found)


def _acls(settings: CoordinatorSettings) -> WatchedFile[Authorizer] | None:
    access = settings.access
    if not access.acls_file:
        return None
    return _watched("muster.acls.file", access.acls_file, lambda content: _authorizer(access, parse_acls(content)))


def _users(sasl: SaslSettings) -> WatchedFile[Users]:
    if not sasl.users_file:
        raise SecurityFileError("sasl.enabled.mechanisms needs muster.users.file")
    return _watched("muster.users.file", sasl.users_file, parse_users)


def _tokens(settings: CoordinatorSettings) -> TokenLogins:
    if not settings.tokens.sasl_oauthbearer_jwks_endpoint_url:
        raise SecurityFileError(f"{OAUTHBEARER} needs sasl.oauthbearer.jwks.endpoint.url")
    # What checks tokens takes 20 MiB: it is loaded where it is used.
    from muster_coordinator.process.token_logins import TokenLogins

    return TokenLogins(settings.tokens)


def _tls(tls: TlsSettings) -> Tls | None:
    clients = _CLIENT_AUTH[tls.ssl_client_auth]
    if not tls.listener_tls_dir:
        if clients is not ssl.CERT_NONE:
            raise SecurityFileError("ssl.client.auth needs muster.listener.tls.dir")
        return None
    files = TlsFiles.of(Path(tls.listener_tls_dir))
    if clients is ssl.CERT_NONE:
        files = replace(files, authorities=None)
    return Tls(files, partial(server_context, clients=clients))


def _watched(setting: str, path: str, parse: Callable[[bytes], _T]) -> WatchedFile[_T]:
    try:
        return WatchedFile(Path(path), parse)
    except SecurityFileError as error:
        raise SecurityFileError(f"{setting}: {error}") from None
