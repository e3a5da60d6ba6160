"""The running cluster that is backed up.

On Kubernetes MUSTER_TLS_DIR names a directory with tls.crt, tls.key and ca.crt of a reader or the operator, as the
Secret `<cluster>-reader-tls` has them. Without it the pods are called plainly.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from muster_cli.errors import CliError
from muster_cli.reshard.site import open_site
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import Tls, TlsError, TlsFiles, client_context


class PodsOfCluster(Protocol):
    """The pods of one cluster, and how they are called. Raises CliError."""

    @property
    def tls(self) -> Tls | None: ...

    async def pods(self) -> dict[str, str]:
        """The address (host:port) of the pod API of each running pod, by name."""


class _Secured:
    """Pods that ask for a certificate."""

    def __init__(self, pods: PodsOfCluster, tls: Tls) -> None:
        self.tls = tls
        self._pods = pods

    async def pods(self) -> dict[str, str]:
        return await self._pods.pods()


@asynccontextmanager
async def open_pods(data_dir: Path | None, namespace: str, cluster: str) -> AsyncIterator[PodsOfCluster]:
    """The embedded instance in `data_dir`, or else this CoordinatorCluster of Kubernetes. Raises CliError."""
    async with open_site(data_dir, namespace, cluster, OFFSETS.name) as site:
        directory = os.environ.get("MUSTER_TLS_DIR") if data_dir is None else None
        yield _Secured(site, pods_tls(Path(directory), f"{namespace}/{cluster}")) if directory else site


def pods_tls(directory: Path, cluster: str) -> Tls:
    """TLS for calls of the pods of `cluster` (NAMESPACE/NAME) with the certificate in a directory. Raises CliError."""
    check = only(cluster, (Role.POD,))
    try:
        return Tls(TlsFiles.of(directory), partial(client_context, check=check))
    except TlsError as error:
        raise CliError(f"MUSTER_TLS_DIR {directory}: {error}") from error
