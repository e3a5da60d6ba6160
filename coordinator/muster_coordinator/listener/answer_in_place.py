"""An answer that handlers get instead of the client's: they know the version and connection of the request by it."""

from __future__ import annotations

from typing import Any

from muster_coordinator.listener.exchange import AnsweringConnection, ClientAnswer


class AnswerInPlace:
    """Knows the client's answer, and the request that the handler was given. Those that say what becomes of the
    response derive from it."""

    __slots__ = ("_exchange", "_request")

    def __init__(self, exchange: ClientAnswer, request: Any) -> None:
        self._exchange = exchange
        self._request = request

    @property
    def version(self) -> int:
        return self._exchange.version

    @property
    def connection(self) -> AnsweringConnection:
        return self._exchange.connection
