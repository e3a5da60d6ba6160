"""The sockets of the peer network: plain, or mutual TLS among the pods of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from muster_coordinator.security.handshakes import Listening
from muster_coordinator.security.handshakes import listen as listen_at
from muster_coordinator.security.roles import ANY_POD, member_of
from muster_coordinator.security.tls import Tls

_P = TypeVar("_P", bound=asyncio.Protocol)


class PeerEndpoint:
    """Listens for other pods, and connects to them. Without `server` and `client` its connections are plain."""

    def __init__(self, server: Tls | None = None, client: Tls | None = None) -> None:
        self._server = server
        self._client = client

    async def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> tuple[Listening, int]:
        """The listener, and the port that it has. Raises OSError when the address cannot be had."""
        return await listen_at(factory, host, port, self._server, "peers")

    async def connect(self, factory: Callable[[], _P], host: str, port: int, pod: str, timeout_s: float) -> _P:
        """Connects to `pod`: with TLS its certificate has to say that it is that one. Raises OSError (TimeoutError and
        SSLError included).
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            if self._client is None:
                _, protocol = await loop.create_connection(factory, host, port)
            else:
                _, protocol = await loop.create_connection(
                    factory, host, port, ssl=self._client.context, server_hostname=pod
                )
        return protocol


def proven_pod(transport: asyncio.BaseTransport) -> str | None:
    """The pod that the certificate of an accepted connection names; None: the connection is plain, or the certificate
    is for every pod of the cluster."""
    certificate = transport.get_extra_info("peercert")
    pod = member_of(certificate).pod if certificate else ANY_POD
    return None if pod == ANY_POD else pod
