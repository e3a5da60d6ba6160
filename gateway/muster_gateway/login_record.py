"""The user that a client's broker has let in, read from both sides of the logins on the client's connection.

A login is an exchange: SaslHandshake that the broker takes, then the tokens of its mechanism. Brokers carry out one
exchange at a time and answer in order, so that each request counts when its answer is there: what a broker has refused
changes nothing, and a token after an exchange has ended is none. Sans-IO.

Sources: SaslServerAuthenticator of Kafka 4.3; RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-368.
"""

from __future__ import annotations

from muster_coordinator.security.names import claimed_name
from muster_coordinator.security.scram import HASHES
from muster_coordinator.security.users import OAUTHBEARER, PLAIN


class LoginRecord:
    """`user`: whom the last exchange that has ended has let in; "": somebody whose name cannot be read; None: no
    exchange has ended yet. `name_claim`: which claim of a token of OAUTHBEARER has the name."""

    def __init__(self, name_claim: str) -> None:
        self.user: str | None = None
        self._name_claim = name_claim
        self._exchange: Exchange | None = None

    @property
    def under_way(self) -> bool:
        """An exchange has begun, and the broker has not let anybody in by it."""
        return self._exchange is not None

    def handshake(self, mechanism: str, taken: bool) -> None:
        """The broker has answered SaslHandshake. `taken`: without an error."""
        self._exchange = Exchange(mechanism, self._name_claim) if taken else None

    def token(self, token: bytes, answer: bytes | None) -> None:
        """The broker has answered SaslAuthenticate with a token; None: with an error."""
        if answer is None:
            self._exchange = None
        elif self._exchange is None:
            self.user = ""  # the broker takes a token where no exchange is known: it follows other rules
        else:
            self._exchange.step(token, answer)
            if self._exchange.ended:
                self.user, self._exchange = self._exchange.name, None

    def not_read(self) -> None:
        """An answer to a login cannot be read."""
        self.user, self._exchange = "", None


class Exchange:
    """Tokens of one login, as far as the broker has answered them. `ended`: the broker has let the client in."""

    def __init__(self, mechanism: str, name_claim: str) -> None:
        self.name = ""
        self.ended = False
        self._mechanism = mechanism
        self._name_claim = name_claim
        self._steps = 0

    def step(self, token: bytes, answer: bytes) -> None:
        """Both sides of one step. An answer that the mechanism does not have there ends the exchange without a name."""
        self._steps += 1
        if self._steps == 1:
            self.name = claimed_name(self._mechanism, token, self._name_claim)
        if self._goes_on(answer):
            return
        self.ended = True
        if not self._lets_in(answer):
            self.name = ""

    def _goes_on(self, answer: bytes) -> bool:
        if self._mechanism == OAUTHBEARER:  # the reason for a token that is refused; the next one is an error's
            return self._steps == 1 and answer != b""
        return self._mechanism in HASHES and self._steps == 1 and answer.startswith(b"r=")

    def _lets_in(self, answer: bytes) -> bool:
        if self._mechanism in HASHES:
            return self._steps == 2 and answer.startswith(b"v=")
        return self._mechanism in (PLAIN, OAUTHBEARER) and self._steps == 1 and answer == b""
