"""The identity provider of `scripts/tokens.py`, and the listener with TLS that both servers have for it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.logins import MECHANISMS
from tests.support.certificates import Authority, pod

from muster_coordinator.security.tls import TlsFiles
from muster_coordinator.security.users import OAUTHBEARER

if TYPE_CHECKING:
    from tests.support.tokens import Provider

KEYS = "sasl.oauthbearer.jwks.endpoint.url"
SETTINGS = {
    MECHANISMS: OAUTHBEARER,
    "sasl.oauthbearer.expected.audience": "muster,other",
    "sasl.oauthbearer.expected.issuer": "https://idp.test",
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "connection.failed.authentication.delay.ms": "0",
}

BROKER = {"sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"}
"""Kafka's alone. The default comes to the same, but for 4.1.0, where it looks neither at signature nor at issuer."""


@functools.cache
def provider(key_id: str | None = "known", algorithm: str = "RS256") -> Provider:
    from tests.support.tokens import Provider  # only where these scripts run

    return Provider(key_id, algorithm)


def write(directory: Path) -> tuple[TlsFiles, dict[str, str]]:
    """Certificates of both servers, and their setting of the file of keys."""
    from tests.support.tokens import key_set

    keys = directory / "keys.json"
    keys.write_bytes(
        key_set(
            provider().public(),
            provider("elliptic", "ES256").public(),
            provider("pinned", "RS512").public(alg="RS512", use="sig"),
            provider("for-encryption", "RS256").public(use="enc"),
        )
    )
    return Authority(directory / "certificates").write("server", pod("pod-0")), {KEYS: keys.as_uri()}
