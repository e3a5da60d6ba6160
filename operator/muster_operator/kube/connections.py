"""The HTTP connections to the API server.

`kubernetes.aio` documents `_create_connector` and `_create_pool_manager` as the methods to override for this (comments
in its `client/rest.py`). If a newer version renames them, it uses its own connections: slower, not wrong.
"""

from __future__ import annotations

from urllib.request import getproxies

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

CONNECTIONS = 32
"""Requests in parallel to the API server."""
KEEP_ALIVE_S = 300.0
"""Idle connections stay open this long, in seconds (aiohttp: 15), so that a failover needs no TLS handshake."""
READ_BUFFER_BYTES = 2 << 20
"""The library's own value: a list of many objects is larger than the buffer of aiohttp."""


class ApiServerConnections(RESTClientObject):
    """Keeps connections open, and looks for proxies and `~/.netrc` only where the environment names a proxy.

    The library looks for them at each request, which took a tenth of the operator's processor time in a failover.
    """

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self.ssl_context, keepalive_timeout=KEEP_ALIVE_S)

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._create_connector(), trust_env=bool(getproxies()), read_bufsize=READ_BUFFER_BYTES
        )
