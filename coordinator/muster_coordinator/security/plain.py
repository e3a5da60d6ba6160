"""SASL/PLAIN, the server's side (RFC 4616), over the hashed passwords of SCRAM. Pure.

Source: org.apache.kafka.common.security.plain.internals.PlainSaslServer.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from muster_coordinator.security.sasl import MayActFor, SaslError, Work, nobody_acts
from muster_coordinator.security.scram import OTHER_AUTHORIZATION_ID, ScramCredential, credential_of

_WRONG = "Authentication failed: Invalid username or password"
_SALT = bytes(16)


class PlainServer:
    """Implements `sasl.Mechanism`. `credential`: (hash, credential) of a user, None if there is none; `stand_in`:
    (hash, iterations) for the name of nobody, always the same for a name."""

    def __init__(
        self,
        credential: Callable[[str], tuple[str, ScramCredential] | None],
        stand_in: Callable[[str], tuple[str, int]],
        may_act: MayActFor = nobody_acts,
    ) -> None:
        self.by = ""
        self._credential_of = credential
        self._stand_in = stand_in
        self._may_act = may_act
        self._user: str | None = None

    @property
    def user(self) -> str | None:
        return self._user

    @property
    def ends_ms(self) -> None:
        return None

    def step(self, token: bytes) -> Work:
        if self._user is not None:
            raise SaslError("a token after the last one")
        try:
            tokens = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslError("a message that is not UTF-8") from None
        if len(tokens) != 3:
            raise SaslError(f"{len(tokens)} parts instead of 3")
        authorization_id, name, password = tokens
        if not name:
            raise SaslError("no name", "Authentication failed: username not specified")
        if not password:
            raise SaslError("no password", "Authentication failed: password not specified")
        hash_name, known = self._credential_of(name) or self._nobody(name)

        def check() -> bytes:
            """An unknown user costs as much time as a wrong password."""
            given = credential_of(password.encode(), hash_name, known.salt, known.iterations)
            if not hmac.compare_digest(given.stored_key, known.stored_key):
                raise SaslError("unknown user or wrong password", _WRONG)
            if authorization_id and authorization_id != name:
                if not self._may_act(name):
                    raise SaslError("another authorization id", OTHER_AUTHORIZATION_ID)
                self.by = name
            self._user = authorization_id or name
            return b""

        return check

    def _nobody(self, name: str) -> tuple[str, ScramCredential]:
        """A credential that no password fits."""
        hash_name, iterations = self._stand_in(name)
        return hash_name, ScramCredential(_SALT, b"", b"", iterations)
