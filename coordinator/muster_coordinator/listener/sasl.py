"""Logins by SASL: the part that all connections of a pod share."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from muster_coordinator.listener.admission import Admission
from muster_coordinator.security.identity import parse_principals
from muster_coordinator.security.plain import PlainServer
from muster_coordinator.security.sasl import Mechanism, SaslError
from muster_coordinator.security.scram import HASHES, ScramServer
from muster_coordinator.security.users import OAUTHBEARER, PLAIN, Users, parse_mechanisms
from muster_coordinator.settings import SaslSettings
from muster_coordinator.shard.ports import Clock


class Sasl:
    """`users` gives those of this moment, `by_token` begins a login by OAUTHBEARER. Passwords are hashed in a thread of
    its own, one after the other."""

    def __init__(
        self,
        settings: SaslSettings,
        users: Callable[[], Users],
        clock: Clock,
        by_token: Callable[[], Mechanism] | None = None,
    ) -> None:
        self.mechanisms = parse_mechanisms(settings.sasl_enabled_mechanisms)
        self.max_receive_bytes = settings.sasl_server_max_receive_size
        self.login_timeout_ms = settings.login_timeout_ms
        self.admission = Admission(
            settings.max_logins_per_address,
            settings.connection_failed_authentication_delay_ms,
            settings.login_timeout_ms,
        )
        self.hashing = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._secret = secrets.token_bytes(16)
        self._users = users
        self._gateways = parse_principals(settings.gateway_users)
        self._clock = clock
        self._by_token = by_token
        self._reauth_ms = settings.connections_max_reauth_ms

    def start(self, mechanism: str) -> Mechanism:
        """A login by one of `mechanisms`."""
        if mechanism == OAUTHBEARER and self._by_token is not None:
            return self._by_token()
        if mechanism == PLAIN:
            return PlainServer(lambda name: self._users().any(name), self._stand_in, self._may_act)
        return ScramServer(
            HASHES[mechanism],
            lambda name: self._users().scram(name, mechanism),
            secrets.token_urlsafe(24),
            self._may_act,
        )

    def _stand_in(self, name: str) -> tuple[str, int]:
        """The salt and the iterations of a user that is drawn by a secret: nobody can foresee which one a name gets."""
        drawn = hmac.digest(self._secret, name.encode(), "sha256")
        return self._users().work_for(int.from_bytes(drawn[:8], "big"))

    def _may_act(self, user: str) -> bool:
        return f"User:{user}" in self._gateways

    def lifetime_ms(self, login: Mechanism) -> int | None:
        """The time (ms) for which this login still counts; None: as long as its connection lasts. Source:
        SaslServerAuthenticator.ReauthInfo."""
        if login.ends_ms is None:
            return self._reauth_ms or None
        rest_ms = max(0, login.ends_ms - self._clock.wall_ms())
        return min(rest_ms, self._reauth_ms) if self._reauth_ms else rest_ms


def told(error: SaslError, mechanism: str, *, again: bool) -> str:
    """The message to the client, as by Kafka (SaslServerAuthenticator). `again`: it had said before who it is."""
    if error.told is not None:
        return error.told
    during = "re-authentication" if again else "authentication"
    return f"Authentication failed during {during} due to invalid credentials with SASL mechanism {mechanism}"
