"""Connections of other pods, which ask what brokers ask of one another (ADR 34). The network between pods has accepted
them: with its TLS, the certificate names the pod. A pod may ask everything, as a broker may in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from muster_coordinator.listener.connection import KafkaConnection
from muster_coordinator.listener.state import Handler, ServerState
from muster_coordinator.settings import ListenerSettings
from muster_coordinator.shard.ports import Clock
from muster_coordinator.wire.served import KAFKA_4_3, ServedApis


class PodCallers:
    """Connections are counted apart from those of clients, who could take all that there may be."""

    def __init__(
        self,
        settings: ListenerSettings,
        clock: Clock,
        handlers: Mapping[type, Handler],
        served: ServedApis = KAFKA_4_3,
    ) -> None:
        self._state = ServerState(settings, clock, served=served)
        self._handlers = handlers

    def connection(self) -> asyncio.Protocol:
        """The service of a connection that another pod has made."""
        return KafkaConnection(self._state, self._handlers)

    def stop(self) -> None:
        for connection in tuple(self._state.connections):
            connection.close()
