"""A `muster-gateway` process of a test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.local_cluster import alive
from tests.support.pod import free_ports

START_TIMEOUT_S = 30.0
POLL_S = 0.02


class GatewayProcess:
    """Starts on entering. `settings`: beside the two clusters'. The log is `directory`/gateway.log."""

    def __init__(
        self, directory: Path, upstream: str, muster: str = "", settings: Mapping[str, str] | None = None
    ) -> None:
        self.log_file = directory / "gateway.log"
        self.port, self.metrics_port = free_ports(2)
        self._settings = {
            "upstream.bootstrap.servers": upstream,
            "muster.bootstrap.servers": muster,
            "listen.host": "127.0.0.1",
            "bootstrap.port": str(self.port),
            "metrics.port": str(self.metrics_port),
            "broker.port.base": "0",
            "pod.port.base": "0",
            **(settings or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def __aenter__(self) -> GatewayProcess:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()

    async def start(self) -> None:
        command = [sys.executable, "-m", "muster_gateway.main"]
        for name, value in self._settings.items():
            command += ["--config", f"{name}={value}"]
        paths = [str(Path(__file__).parents[2] / "gateway"), os.environ.get("PYTHONPATH", "")]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        await self.wait_event("gateway_ready")

    async def wait_event(self, event: str) -> dict[str, object]:
        """The first log line of that event."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                found = self.events(event)
                if found:
                    return found[0]
                assert alive(self.pid), f"the gateway ended: {self.log()}"
                await asyncio.sleep(POLL_S)

    def events(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if line["event"] == event]

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(timeout=10)
