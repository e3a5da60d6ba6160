"""The connection to the broker that a port of the gateway stands for, or to any broker."""

from __future__ import annotations

import asyncio

from muster_coordinator.outgoing.connector import Connector
from muster_gateway.broker_connection import BrokerConnection
from muster_gateway.caller import Address, connect_s
from muster_gateway.nodes import Kind, Nodes, Role
from muster_gateway.upstream import Upstream


class Dialling:
    """Makes connections to brokers and pods, for all clients. `logs_in`: the gateway logs in, and not its clients."""

    def __init__(self, connector: Connector, nodes: Nodes, upstream: Upstream, *, logs_in: bool) -> None:
        self._connector = connector
        self._nodes = nodes
        self._upstream = upstream
        self._logs_in = logs_in

    async def connect(self, broker: BrokerConnection, role: Role) -> float | None:
        """Connect for clients of `role`. Returns for how many seconds the broker knows the gateway; None: as long as
        the connection lasts. Raises OSError, TimeoutError when no broker can be reached."""
        last: Exception = OSError(f"{role.kind.value} {role.number} is not known")
        for address in self._addresses(role):
            try:
                async with asyncio.timeout(connect_s(self._connector)):
                    _, lifetime_s = await self._connector.connect(broker, address, login=self._logs_in)
            except (OSError, TimeoutError) as error:
                last = error
            else:
                return lifetime_s
        raise last

    def _addresses(self, role: Role) -> list[Address]:
        if role.kind is not Kind.BROKER:
            return self._upstream.addresses()
        address = self._nodes.broker(role.number)
        return [address] if address is not None else []
