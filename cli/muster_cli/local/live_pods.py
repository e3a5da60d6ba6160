"""The pod API of the pods that run on a data directory now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.tls import tls_of
from muster_coordinator.podapi.client import PodClient, new_session
from muster_coordinator.security.roles import Role


@asynccontextmanager
async def live_pods(data: DataDir) -> AsyncIterator[list[PodClient]]:
    """Clients with the rights of the operator. Raises CliError: no pod runs."""
    record = data.read_run()
    alive = [pod for pod in record.pods if pod.alive] if record is not None else []
    if record is None or not alive:
        raise CliError(f"nothing runs on {data.root}; start it with: muster local up --data-dir {data.root}")
    tls = tls_of(data, record, Role.OPERATOR)
    async with new_session() as session:
        yield [PodClient(session, pod.name, pod.api_address, tls) for pod in alive]
