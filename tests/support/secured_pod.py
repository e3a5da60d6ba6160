"""A pod of a test whose listener has TLS, and how a client of it checks that it is the one."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod

from muster_coordinator.security.tls import TlsFiles


@dataclass
class SecuredPod:
    """`server`: the listener's certificate, and the authorities that clients trust."""

    pod: SoloPod
    server: TlsFiles

    @property
    def ca(self) -> str:
        return str(self.server.authorities)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.pod.kafka_port}"

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = False
        return context

    async def client(self, context: ssl.SSLContext | None = None) -> KafkaClient:
        port = self.pod.kafka_port
        return KafkaClient(*await asyncio.open_connection("127.0.0.1", port, ssl=context or self.context()))
