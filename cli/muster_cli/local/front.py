"""`muster local up --upstream`: the gateway in front of a Kafka cluster, as one more supervised process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster_cli.errors import CliError, CliUsageError
from muster_cli.local.data_dir import DataDir, RunningPod
from muster_cli.local.ports import LOOPBACK, free_ports, is_free
from muster_cli.local.supervisor import PodSupervisor
from muster_cli.local.tls import CLUSTER_NAME
from muster_gateway.settings import SettingsError, parse_settings

NAME = "gateway"
BROKER_PORTS, POD_PORTS, READY_PORT = 1, 201, 200
"""The distances from the port for `bootstrap.servers`: broker n is at the first plus n, pod n at the second plus n, and
the port that is open when the gateway knows the brokers at the third."""
ASK_AGAIN_S = 0.2
SAY_LATE_S = 5.0
"""Seconds after which a person is told that the gateway has not found the brokers yet."""
_ATTEMPTS = 50


@dataclass(frozen=True)
class Pods:
    """The addresses of pods, HOST:PORT between commas. `reader`: the directory with the certificate for `apis`; None:
    they are plain.
    """

    kafka: str
    apis: str
    reader: Path | None = None


@dataclass(frozen=True)
class FrontOptions:
    """`upstream`: HOST:PORT of brokers, separated by commas. `groups`: prefixes of the groups that Muster serves,
    `movable`: of those that may move to it. `mirrored`: the pods mirror the cluster."""

    upstream: str
    groups: str
    port: int
    mirrored: bool
    movable: str = ""
    outgoing: Mapping[str, str] = field(default_factory=dict)
    """The TLS and logins that brokers ask for, as settings of the gateway."""

    def settings(self, pods: Pods, port: int) -> dict[str, str]:
        """The settings of the gateway's process."""
        movable = {"muster.movable.groups": self.movable, "muster.api.servers": pods.apis} if self.movable else {}
        if movable and pods.reader is not None:
            movable |= {"muster.api.tls.dir": str(pods.reader.absolute()), "muster.api.cluster": CLUSTER_NAME}
        return {
            "upstream.bootstrap.servers": self.upstream,
            "muster.bootstrap.servers": pods.kafka,
            "muster.groups": self.groups,
            # Without a mirror nothing would ever end the offsets of a transaction.
            "muster.transactions": str(int(self.mirrored)),
            "listen.host": LOOPBACK,
            "advertised.host": LOOPBACK,
            "bootstrap.port": str(port),
            "broker.port.base": str(port + BROKER_PORTS),
            "pod.port.base": str(port + POD_PORTS),
            "ready.port": str(port + READY_PORT),
            **movable,
            **self.outgoing,
        }


class LocalGateway:
    """`taken`: ports that are the pods', though nobody may listen at them yet. Raises
    CliError, CliUsageError."""

    def __init__(
        self,
        data: DataDir,
        options: FrontOptions,
        pods: Pods,
        taken: frozenset[int],
        *,
        changed: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self._options = options
        self._report = report
        self._log = data.logs / f"{NAME}.log"
        port = options.port or _free_block(taken)
        if port in taken or not is_free(port):
            raise CliError(f"port {port} is already in use on {LOOPBACK}. Choose another with --gateway-port, or 0")
        settings = options.settings(pods, port)
        try:
            parse_settings(settings)
        except SettingsError as error:
            raise CliUsageError(f"--upstream: {error}") from error
        # The directory is how a later run recognizes the process.
        command = [sys.executable, "-m", "muster_gateway.main", "--instance", str(data.pod(NAME))]
        for name, value in settings.items():
            command += ["--config", f"{name}={value}"]
        address = f"{LOOPBACK}:{port}"
        self.supervisor = PodSupervisor(
            RunningPod(name=NAME, node_id=-1, kafka_address=address, api_address="", process=None),
            lambda _uid: command,
            self._log,
            on_change=changed,
            report=report,
        )

    @property
    def running(self) -> RunningPod:
        return self.supervisor.pod

    async def run(self) -> None:
        """Start it, and say when clients can use it. Until cancelled; the process stays."""
        self.supervisor.start()
        loop = asyncio.get_running_loop()
        late_s = loop.time() + SAY_LATE_S
        while not await self._serves():
            if loop.time() > late_s:
                late_s = float("inf")
                self._report(
                    f"the gateway has not found the brokers of {self._options.upstream} yet (log: {self._log})"
                )
            await asyncio.sleep(ASK_AGAIN_S)
        self._report(f"gateway bootstrap={self.running.kafka_address} brokers={self._options.upstream}")
        await asyncio.Event().wait()

    async def _serves(self) -> bool:
        host, _, port = self.running.kafka_address.rpartition(":")
        try:
            _, writer = await asyncio.open_connection(host, int(port) + READY_PORT)
        except OSError:
            return False
        writer.close()
        return True


def _free_block(taken: frozenset[int]) -> int:
    """A port whose neighbours, which brokers and pods get, are free as well; none of `taken`."""
    for _ in range(_ATTEMPTS):
        (port,) = free_ports(1, taken)
        neighbours = [
            *range(port + BROKER_PORTS, port + BROKER_PORTS + 5),
            *range(port + READY_PORT, port + POD_PORTS + 5),
        ]
        if taken.isdisjoint(neighbours) and all(map(is_free, neighbours)):
            return port
    raise CliError("no free ports for the gateway: choose one with --gateway-port")
