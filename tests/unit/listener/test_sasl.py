"""How long a login counts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from muster_coordinator.listener.sasl import Sasl
from muster_coordinator.security.oauth import OAuthBearerServer, Token
from muster_coordinator.security.scram import ScramServer
from muster_coordinator.security.users import Users
from muster_coordinator.settings import SaslSettings


@dataclass
class Clock:
    """Implements `shard.ports.Clock`."""

    now_ms: int = 10_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return 1

    def monotonic_s(self) -> float:
        return 0.001


def token_login(ends_ms: int) -> OAuthBearerServer:
    login = OAuthBearerServer(lambda _: Token("alice", ends_ms))
    login.step(b"n,,\x01auth=Bearer x\x01\x01")
    return login


@pytest.mark.parametrize(
    ("reauth_ms", "ends_ms", "lifetime_ms"),
    [(0, 15_000, 5000), (3000, 15_000, 3000), (9000, 15_000, 5000), (0, 10_000, 0), (0, 1, 0), (3000, 1, 0)],
)
def test_login_by_a_token_counts_until_the_sooner_end(reauth_ms: int, ends_ms: int, lifetime_ms: int) -> None:
    sasl = Sasl(SaslSettings("OAUTHBEARER", connections_max_reauth_ms=reauth_ms), Users, Clock())
    assert sasl.lifetime_ms(token_login(ends_ms)) == lifetime_ms


@pytest.mark.parametrize(("reauth_ms", "lifetime_ms"), [(0, None), (3000, 3000)])
def test_login_by_a_password_counts_as_long_as_is_set(reauth_ms: int, lifetime_ms: int | None) -> None:
    sasl = Sasl(SaslSettings("SCRAM-SHA-256", connections_max_reauth_ms=reauth_ms), Users, Clock())
    assert sasl.lifetime_ms(ScramServer("sha256", lambda _: None, "nonce")) == lifetime_ms
