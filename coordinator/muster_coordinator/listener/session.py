"""The session of a login: how long it counts, and how a client logs in again on the same connection (KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.audit import LONGEST_NAME, AuditLog
from muster_coordinator.listener.exchange import AnsweringConnection, ClientAnswer
from muster_coordinator.listener.sasl import Sasl, told
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.security.identity import Identity
from muster_coordinator.security.sasl import LaterError, Mechanism, SaslError


class Session:
    """One for each connection whose session ends, which it does `lifetime_ms` after the login. Then only a handshake is
    answered: a client may let an idle connection run out, and say again who it is before its next request.

    `handlers` are those that the connection begins with.
    """

    def __init__(
        self,
        sasl: Sasl,
        identity: Identity,
        lifetime_ms: int,
        handlers: Mapping[type, Handler],
        now_ms: int,
        audit: AuditLog,
    ) -> None:
        self._sasl = sasl
        self._audit = audit
        self._identity = identity
        self._mechanism_name = identity.mechanism
        self._closing: dict[type, Handler] = dict.fromkeys(handlers, _close)
        self._plain = handlers[w.SaslHandshakeRequest]
        self._open: Mapping[type, Handler] = {**handlers, w.SaslHandshakeRequest: self._handshake}
        self._over: Mapping[type, Handler] = {**self._closing, w.SaslHandshakeRequest: self._handshake}
        self.handlers = self._open if lifetime_ms else self._over
        self._ends_ms = now_ms + lifetime_ms
        self._now_ms = now_ms
        self._may_again = True  # once between two looks, so about once a second as in Kafka (KafkaChannel)
        self._mechanism: Mechanism | None = None
        self._hashing: asyncio.Future[bytes] | None = None
        self._is_refused = False

    def look(self, connection: AnsweringConnection, now_ms: int) -> None:
        """The time is `now_ms`: the session may have ended."""
        self._now_ms = now_ms
        self._may_again = True
        if self._is_refused:
            connection.close()
        elif now_ms >= self._ends_ms and self._mechanism is None:
            connection.serve(self._over)

    def leave(self) -> None:
        """The connection has gone: others wait for the thread that would hash for it."""
        if self._hashing is not None:
            self._hashing.cancel()

    def _handshake(self, request: w.SaslHandshakeRequest, exchange: ClientAnswer) -> None:
        if not self._may_again:
            self._plain(request, exchange)
            return
        mechanisms = self._sasl.mechanisms
        connection = exchange.connection
        if request.mechanism not in mechanisms:
            exchange.answer(w.SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms))
            connection.close()
        elif request.mechanism != self._mechanism_name or exchange.version == 0:
            exchange.answer(w.SaslHandshakeResponse(0, mechanisms))
            connection.serve(self._closing)  # the mechanism may not change; bare tokens are none of a session's
        else:
            self._may_again = False
            self._mechanism = self._sasl.start(request.mechanism)
            connection.serve({**self._closing, w.SaslAuthenticateRequest: self._token})
            exchange.answer(w.SaslHandshakeResponse(0, mechanisms))

    def _token(self, request: w.SaslAuthenticateRequest, exchange: ClientAnswer) -> None:
        assert self._mechanism is not None
        try:
            step = self._mechanism.step(request.auth_bytes)
        except SaslError as error:
            self._refuse(exchange, error)
            return
        if isinstance(step, bytes):
            self._answer(exchange, step)
            return
        exchange.connection.serve(self._closing)  # until the password is hashed
        hashing = self._hashing = asyncio.get_running_loop().run_in_executor(self._sasl.hashing, step)

        def hashed(done: asyncio.Future[bytes]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, SaslError):
                self._refuse(exchange, error)
            else:
                self._answer(exchange, done.result())

        hashing.add_done_callback(hashed)

    def _answer(self, exchange: ClientAnswer, token: bytes) -> None:
        assert self._mechanism is not None
        user = self._mechanism.user
        if user is None:
            exchange.answer(w.SaslAuthenticateResponse(0, "", token))
            return
        if f"User:{user}" != self._identity.principal or self._mechanism.by != self._identity.by:
            before = self._identity.principal.removeprefix("User:")
            text = f"Cannot change principals during re-authentication from User.{before}: User.{user}"
            self._refuse(exchange, SaslError("another user", text))
            return
        lifetime_ms = self._sasl.lifetime_ms(self._mechanism) or 0
        self._mechanism = None
        self._ends_ms = self._now_ms + lifetime_ms
        exchange.connection.serve(self._open if lifetime_ms else self._over)
        exchange.answer(w.SaslAuthenticateResponse(0, "", token, lifetime_ms))

    def _refuse(self, exchange: ClientAnswer, error: SaslError) -> None:
        """Refuses the client after a while in which every other request closes the connection; then it has a moment to
        read this.
        """
        connection = exchange.connection
        connection.serve(self._closing)
        if isinstance(error, LaterError):
            connection.close()
            return
        who = self._identity
        self._audit.tell(
            "login_refused",
            who.host,
            reason="login",
            error=str(error),
            mechanism=self._mechanism_name,
            principal=who.principal[:LONGEST_NAME],
        )
        delay_ms = self._sasl.admission.failed(who.host, self._now_ms)
        text = told(error, self._mechanism_name, again=True)

        def end() -> None:
            exchange.answer(w.SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, text))
            self._is_refused = True

        asyncio.get_running_loop().call_later(delay_ms / 1000, end)


def _close(_request: Any, exchange: ClientAnswer) -> None:
    exchange.connection.close()
