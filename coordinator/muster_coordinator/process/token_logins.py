"""Logins by OAUTHBEARER, from settings: what tokens must say, and the keys that sign them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

from muster_coordinator.process.token_keys import PublishedKeys
from muster_coordinator.security.jwks import KeySet, parse_keys
from muster_coordinator.security.oauth import OAuthBearerServer
from muster_coordinator.security.sasl import Mechanism
from muster_coordinator.security.tokens import TokenRules, TokenVerifier
from muster_coordinator.security.watched_file import SecurityFileError, WatchedFile
from muster_coordinator.setting_fields import parse_names
from muster_coordinator.settings import TokenSettings

logger = structlog.get_logger(__name__)


class TokenLogins:
    """`login` begins one; `look` looks for a file that has changed."""

    def __init__(self, settings: TokenSettings) -> None:
        """Reads the keys if they are in a file. Raises SecurityFileError."""
        rules = TokenRules(
            parse_names(settings.sasl_oauthbearer_expected_audience),
            settings.sasl_oauthbearer_expected_issuer,
            settings.sasl_oauthbearer_clock_skew_seconds,
            settings.sasl_oauthbearer_sub_claim_name,
        )
        for claim, expected in (("audience", rules.audiences), ("issuer", rules.issuer)):
            if not expected:
                logger.warning("tokens_of_any_kind", missing=f"sasl.oauthbearer.expected.{claim}")
        keys = _keys(settings)
        self._file = keys if isinstance(keys, WatchedFile) else None
        self._published = keys if isinstance(keys, PublishedKeys) else None
        self._verifier = TokenVerifier(rules, lambda: keys.value, self._published.want if self._published else _no_more)

    async def start(self) -> None:
        """Tries to have keys."""
        if self._published is not None:
            await self._published.start()

    async def stop(self) -> None:
        if self._published is not None:
            await self._published.stop()

    def look(self) -> None:
        if self._file is not None:
            self._file.look()

    def login(self) -> Mechanism:
        return OAuthBearerServer(self._verifier.verify)


def _keys(settings: TokenSettings) -> WatchedFile[KeySet] | PublishedKeys:
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url.startswith("file:"):
        return PublishedKeys(
            url,
            parse_keys,
            settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000,
        )
    try:
        return WatchedFile(Path(unquote(urlsplit(url).path)), parse_keys)
    except SecurityFileError as error:
        raise SecurityFileError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None


def _no_more() -> None:
    """A file is read when it changes."""
