"""The ports of a pod that no Kafka client uses: pod API, peer network, probes, metrics; and their TLS (ADR 30)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from muster_coordinator.listener.listener import ListenerSecurity
from muster_coordinator.peers.endpoint import PeerEndpoint
from muster_coordinator.podapi.access import CALLERS
from muster_coordinator.podapi.control import PodControl
from muster_coordinator.podapi.side_ports import metrics_app, probe_app
from muster_coordinator.security.handshakes import Door, listen
from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import Tls, TlsFiles, client_context, server_context
from muster_coordinator.security.watched_file import WatchedFile

if TYPE_CHECKING:
    from muster_coordinator.process.options import ProcessOptions

MINIMUM = ssl.TLSVersion.TLSv1_3
"""Pods, operator and Prometheus all have it. Sessions of TLS 1.2 could be resumed after a certificate has expired."""


class InnerPorts:
    """Everything is plain without `tls_dir`. `look` looks for files that have changed."""

    def __init__(self, options: ProcessOptions) -> None:
        """Reads the files. Raises TlsError, SecurityFileError."""
        self._options = options
        self._api: Tls | None = None
        self._metrics: Tls | None = None
        self._token: WatchedFile[bytes] | None = None
        self._read: list[Callable[[], bool]] = []
        self.peers = PeerEndpoint()
        if options.tls_dir is not None:
            self._secure(options.tls_dir, options.cluster)
        if options.metrics_token_file is not None:
            self._token = WatchedFile(options.metrics_token_file, _token)
            self._read.append(self._token.look)

    def _secure(self, directory: Path, cluster: str) -> None:
        files = TlsFiles.of(directory)
        of_pods, of_callers = only(cluster, (Role.POD,)), only(cluster, CALLERS)
        self._api = Tls(files, partial(server_context, check=of_callers, minimum=MINIMUM))
        optional = partial(server_context, clients=ssl.CERT_OPTIONAL, check=_or_none(of_callers), minimum=MINIMUM)
        self._metrics = Tls(files, optional)
        among_pods = Tls(files, partial(server_context, check=of_pods, minimum=MINIMUM))
        to_pods = Tls(files, partial(client_context, check=of_pods, minimum=MINIMUM))
        self.peers = PeerEndpoint(among_pods, to_pods)
        self._read += [each.look for each in (self._api, self._metrics, among_pods, to_pods)]

    def look(self) -> bool:
        """Read files again that have changed, and say whether there was one; what is open stays open."""
        changed = [read() for read in self._read]
        return any(changed)

    async def serve(
        self,
        api: web.Application,
        pod: PodControl,
        render: Callable[[], bytes],
        stack: AsyncExitStack,
        descriptors: int,
    ) -> None:
        """The pod API; probes and metrics, where they have a port of their own. `render`: the text of the metrics.
        `descriptors`: connections get those below. Raises OSError when an address cannot be had."""
        options, token = self._options, self._token
        await _serve(api, options.api_listen, self._api, "api", stack, descriptors)
        if options.probe_listen is not None:
            await _serve(probe_app(pod), options.probe_listen, None, "probes", stack, descriptors)
        if options.metrics_listen is not None:
            app = metrics_app(render, None if token is None else lambda: token.value)
            tls = None if options.metrics_plain else self._metrics
            await _serve(app, options.metrics_listen, tls, "metrics", stack, descriptors)


def plain_ports(options: ProcessOptions, clients: Mapping[str, ListenerSecurity]) -> dict[str, tuple[str, int]]:
    """Addresses of ports without TLS, by what comes there. `clients`: of their listeners, the first is called ""."""
    listeners = {"": options.kafka_listen, **options.listeners}
    plain = {f"kafka {name}".strip(): at for name, at in listeners.items() if clients[name].tls is None}
    if options.tls_dir is None:
        plain |= {"api": options.api_listen, "peers": options.peer_listen}
    return plain


async def _serve(
    app: web.Application,
    address: tuple[str, int],
    tls: Tls | None,
    name: str,
    stack: AsyncExitStack,
    descriptors: int,
) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    server = runner.server
    assert server is not None
    listening, _ = await listen(server, *address, tls, name, Door(descriptors))
    stack.callback(listening.close)


def _or_none(check: Callable[[dict[str, object], str], None]) -> Callable[[dict[str, object], str], None]:
    """The check for a port on which a token does as well as a certificate."""

    def check_if_shown(certificate: dict[str, object], dialled: str) -> None:
        if certificate:
            check(certificate, dialled)

    return check_if_shown


def _token(content: bytes) -> bytes:
    token = content.strip()
    if not token:
        raise ValueError("there is no token in it")
    return token
