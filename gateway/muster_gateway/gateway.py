"""One gateway: its ports, what its connections share, and its limits."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections import Counter

import structlog

from muster_coordinator.listener.rotation import Rotation
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.security.handshakes import Door, Listening, listen
from muster_coordinator.tuning.descriptors import descriptor_shares
from muster_gateway.caller import Address
from muster_gateway.client import ClientConnection
from muster_gateway.coordinators import Coordinators
from muster_gateway.counts import Traffic
from muster_gateway.dialling import Dialling
from muster_gateway.entry import Entry, identify_by_certificate, listener_tls
from muster_gateway.lease_calls import LeaseCalls, api_tls
from muster_gateway.moves import Moves
from muster_gateway.muster import Muster
from muster_gateway.nodes import Nodes, Role
from muster_gateway.refusal_log import RefusalLog
from muster_gateway.rewriting import Announced
from muster_gateway.routes import Routes, prefixes_of
from muster_gateway.settings import GatewaySettings, addresses
from muster_gateway.shown import Shown
from muster_gateway.topic_ids import TopicNames
from muster_gateway.upstream import CLIENT_ID, Upstream

logger = structlog.get_logger(__name__)

HOUSEKEEPING_S = 1.0
"""The interval of looks for idle connections."""


class Probe(asyncio.Protocol):
    """A connection to the port for probes ends at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Gateway:
    """Implements `client.Connections`. `start`, then `run` until cancelled, then `stop`."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        movable = prefixes_of(settings.movable)
        name = f"{socket.gethostname()}-{uuid.uuid4()}"
        self.moves = Moves(movable, name, self._more_is_movable) if settings.asks_leases else None
        self.routes = Routes(prefixes_of(settings.groups), self.moves.is_at_muster if self.moves is not None else None)
        self.nodes = Nodes(settings, self._listen)
        self._lease_calls = self._calls_of(self.moves) if self.moves is not None else None
        to_brokers = Connector(settings.to_brokers, CLIENT_ID)
        to_pods = Connector(settings.to_pods, CLIENT_ID)
        limit = settings.max_read_bytes
        self.upstream = Upstream(to_brokers, addresses(settings.upstream), self.nodes, limit)
        self.muster = Muster(to_pods, addresses(settings.muster), self.nodes, limit)
        self.coordinators = Coordinators(self.routes, self.nodes, self.muster, settings.park_ms / 1000)
        self.shown = Shown(self.routes, self.moves, self.nodes, self.coordinators)
        self.dialling = Dialling(to_brokers, self.nodes, self.upstream, logs_in=settings.asks_clients)
        self.identify = identify_by_certificate(settings)
        self._tls = listener_tls(settings)
        self._entry = Entry(settings, self._versions) if settings.sasl_enabled_mechanisms else None
        self.refused: dict[str, Counter[str]] = {"upstream": to_brokers.failed, "muster": to_pods.failed}
        """Connections of the gateway's own, by cluster and reason."""
        self.topic_names = TopicNames()
        self.traffic = Traffic()
        self.rotation = Rotation()
        self.refusals = RefusalLog()
        self.ended: Counter[str] = Counter()
        """Connections that ended, by reason."""
        self._servers: list[Listening] = []
        self._clients: set[ClientConnection] = set()
        self.held_bytes = 0
        """The bytes that all connections hold together."""

    def _calls_of(self, moves: Moves) -> LeaseCalls:
        settings = self.settings
        tls = api_tls(settings.api_tls_dir, settings.api_cluster) if settings.api_tls_dir else None
        return LeaseCalls(moves, self._apis, tls)

    def _apis(self) -> list[Address]:
        """The addresses of the pods' APIs, as far as the pods are known."""
        port = self.settings.api_port
        at_pods = [(host, port) for host, _ in self.nodes.pods.values()] if port else []
        return [*addresses(self.settings.api), *at_pods]

    def _more_is_movable(self) -> None:
        """Close the clients that wait for answers about groups: Kafka was asked without a lease."""
        for client in tuple(self._clients):
            if client.waits_about_groups:
                client.close("movable_groups_learned")

    async def start(self) -> Address:
        """Listen for clients; returns the bootstrap address. Raises OSError.

        Not before Muster was asked for its pods: a client that connects again and is told of the nodes without them
        forgets the coordinator that it waits for (librdkafka's issue 5511: its transaction then hangs).
        """
        if self.settings.clients_share_user:
            logger.warning("clients_share_user", setting="muster.act.for.clients=0", groups=self.settings.groups)
        if self.settings.muster:
            await self.muster.find_pods()
        return await self.nodes.open_bootstrap()

    async def ready(self) -> None:
        """Wait until clients can be told of all nodes, of Muster's as far as they are there: then the port for probes
        opens. Raises OSError."""
        await self.upstream.known()
        if self.settings.ready_port:
            loop, host = asyncio.get_running_loop(), self.settings.listen_host
            self._servers.append(await loop.create_server(Probe, host, self.settings.ready_port))

    async def run(self) -> None:
        """Follow the two clusters until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.upstream.run())
            group.create_task(self._housekeep())
            if self.settings.muster:
                group.create_task(self.muster.run())
            if self._lease_calls is not None:
                group.create_task(self._lease_calls.run())

    async def stop(self) -> None:
        """Clients lose their connections, and connect again."""
        if self._entry is not None:
            self._entry.stop()
        for server in self._servers:
            server.close()
        for client in tuple(self._clients):
            client.close("stopped")
        self.refusals.tell_rest()

    async def _listen(self, role: Role, port: int) -> int:
        name = f"{role.kind.value} {role.number}"
        host, door = self.settings.listen_host, Door(descriptor_shares().relayed, self._no_descriptor)
        server, port = await listen(lambda: self._client(role), host, port, self._tls, name, door)
        self._servers.append(server)
        return port

    def _no_descriptor(self, host: str) -> None:
        self.ended["no_descriptors"] += 1

    def _client(self, role: Role) -> asyncio.Protocol:
        """The protocol that a new connection begins with."""
        if self._entry is None:
            return ClientConnection(self, role)
        if self.upstream.announced is None:  # a client would take an answer without APIs for the truth
            return Probe()
        return self._entry.client(lambda user: ClientConnection(self, role, user))

    def _versions(self) -> Announced:
        """The versions that all brokers and Muster have. Until a client has logged in no broker can be asked."""
        announced = self.upstream.announced
        assert announced is not None
        return announced.through_gateway(self.coordinators.group_apis)

    # -- Connections --------------------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._clients)

    def opened(self, client: ClientConnection) -> bool:
        self._clients.add(client)
        return len(self._clients) <= self.settings.max_connections

    def closed(self, client: ClientConnection, reason: str | None) -> None:
        self._clients.discard(client)
        self.ended[reason or "client"] += 1

    def held(self, client: ClientConnection, more: int) -> None:
        self.held_bytes += more
        if more > 0 and self.held_bytes > self.settings.max_held_bytes:
            most = max(self._clients, key=lambda each: each.held_bytes)
            self.refusals.tell(most.peer, "held_most", f"{most.held_bytes} bytes: {most!r}")
            most.abort()

    def _look_at_files(self) -> None:
        if self._tls is not None:
            self._tls.look()
        if self._entry is not None and self._entry.look():
            for client in tuple(self._clients):
                if not self._entry.knows(client.user):
                    client.close("user_removed")

    async def _housekeep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            self._look_at_files()
            self.refusals.look(loop.time())
            oldest_s = loop.time() - self.settings.connections_max_idle_ms / 1000
            for client in tuple(self._clients):
                if client.last_active_s < oldest_s and client.is_idle:
                    client.close("idle")
