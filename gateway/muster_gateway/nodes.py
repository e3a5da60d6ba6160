"""The nodes that clients see: an address of the gateway for every broker, and for every pod of Muster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import structlog

from muster_gateway.caller import Address
from muster_gateway.rewriting import Node
from muster_gateway.settings import PORT_MAX, GatewaySettings

logger = structlog.get_logger(__name__)


class Kind(Enum):
    BOOTSTRAP = "bootstrap"
    BROKER = "broker"
    POD = "pod"


@dataclass(frozen=True)
class Role:
    """The role of a port of the gateway: the node that it stands for. `number`: of the broker, or of the pod."""

    kind: Kind
    number: int = 0


Listen = Callable[[Role, int], Awaitable[int]]
"""Listens at a port (0: a free one) for clients of a role; returns the port. Raises OSError."""


class Nodes:
    """`listen` opens a port. A port stays open when its broker is gone: it may come back, and until then a client is
    refused as by the broker itself."""

    def __init__(self, settings: GatewaySettings, listen: Listen) -> None:
        self._settings = settings
        self._listen = listen
        self._lock = asyncio.Lock()
        self._told: dict[Role, Address] = {}
        self._refused: set[Role] = set()
        """Nodes that never get a port, which is logged once."""
        self._brokers: dict[int, Address] = {}
        self._pods: dict[int, Address] = {}

    async def open_bootstrap(self) -> Address:
        """Raises OSError when the port cannot be had."""
        return await self._open(Role(Kind.BOOTSTRAP), self._settings.bootstrap_port)

    # -- what is behind them ------------------------------------------------------------------------------------------

    def broker(self, number: int) -> Address | None:
        """The address at which the broker itself listens; None if the broker is not known."""
        return self._brokers.get(number)

    @property
    def brokers(self) -> list[Address]:
        return list(self._brokers.values())

    def pod(self, number: int) -> Address | None:
        return self._pods.get(number)

    @property
    def pods(self) -> dict[int, Address]:
        return self._pods

    # -- learning -----------------------------------------------------------------------------------------------------

    def learn_brokers(self, brokers: Sequence[Node]) -> bool:
        """Note the addresses of brokers. Returns whether clients can be told of each; else `tell_brokers` is needed."""
        for node in brokers:
            if self._brokers.get(node.node_id) != (node.host, node.port):
                logger.info("broker_found", broker=node.node_id, address=f"{node.host}:{node.port}")
                self._brokers[node.node_id] = (node.host, node.port)
        return all(Role(Kind.BROKER, node.node_id) in self._told for node in brokers)

    async def tell_brokers(self, brokers: Sequence[Node]) -> None:
        """Open a port for each broker that has none."""
        async with self._lock:
            for node in brokers:
                role = Role(Kind.BROKER, node.node_id)
                await self._open_or_log(role, self._settings.broker_port_base, self._settings.broker_first_id)

    async def learn_pods(self, pods: Sequence[Node]) -> None:
        """The pods of Muster that are there now."""
        self._pods = {node.node_id: (node.host, node.port) for node in pods}
        async with self._lock:
            for number in self._pods:
                await self._open_or_log(Role(Kind.POD, number), self._settings.pod_port_base)

    # -- what clients are told ----------------------------------------------------------------------------------------

    @property
    def told_brokers(self) -> int:
        """The number of brokers that clients can be told of."""
        return sum(role.kind is Kind.BROKER for role in self._told)

    def broker_address(self, number: int) -> Address | None:
        """The gateway's address for a broker; None: it has none (yet)."""
        return self._told.get(Role(Kind.BROKER, number))

    def shown(self, brokers: Sequence[Node]) -> list[Node]:
        """The nodes that a client is told in place of these: with the gateway's addresses, and Muster's pods. A broker
        that has no address here is left out: its own address must not be told."""
        shown = []
        for node in brokers:
            address = self.broker_address(node.node_id)
            if address is not None:
                shown.append(Node(node.node_id, *address, node.rack, node.fenced))
        return shown + self.shown_pods() if shown else shown

    def shown_pods(self) -> list[Node]:
        return [shown for number in sorted(self._pods) if (shown := self.shown_pod(number)) is not None]

    def shown_pod(self, number: int) -> Node | None:
        """A pod as clients know it."""
        address = self._told.get(Role(Kind.POD, number))
        return Node(self._settings.pod_node_id_base + number, *address) if address is not None else None

    # -- ports --------------------------------------------------------------------------------------------------------

    async def _open_or_log(self, role: Role, base: int, first: int = 0) -> None:
        if role in self._told or role in self._refused:
            return
        port = base + role.number - first if base else 0
        if not (0 <= port <= PORT_MAX and self._may_have_port(role)):
            logger.error("node_without_port", node=role.kind.value, number=role.number, port=port)
            self._refused.add(role)
            return
        try:
            address = await self._open(role, port)
        except OSError as error:
            logger.error("cannot_listen", node=role.kind.value, number=role.number, port=port, error=str(error))
        else:
            logger.info("node_opened", node=role.kind.value, number=role.number, address=f"{address[0]}:{address[1]}")

    def _may_have_port(self, role: Role) -> bool:
        """True if clients can be told of a broker with this number."""
        if role.kind is not Kind.BROKER:
            return True
        first, count = self._settings.broker_first_id, self._settings.broker_ids
        end = min(first + count, self._settings.pod_node_id_base) if count else self._settings.pod_node_id_base
        return first <= role.number < end

    async def _open(self, role: Role, port: int) -> Address:
        address = self._settings.advertised_host, await self._listen(role, port)
        self._told[role] = address
        return address
