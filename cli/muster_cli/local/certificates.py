"""TLS of an embedded instance: `muster local up --tls` is its CA, and keeps the certificates in the data directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from muster_cli.local.data_dir import DataDir
from muster_cli.local.tls import CLUSTER_NAME, member_tls
from muster_coordinator.security.roles import Member, Role
from muster_operator.certificates.folder import CertificateFolder

HOSTS = ("localhost", "127.0.0.1")
LOOK_EVERY_S = 1.0
"""Seconds between two looks at the certificates, which somebody may have exchanged."""
KEEP_EVERY = 60
"""Each so many looks, what is due is renewed (`muster_operator.certificates.rotation`)."""


def certificate_folder(data: DataDir, pods: int) -> CertificateFolder:
    """The certificates of pods `muster-0`, ..., of the operator and of readers."""
    members = [Member(CLUSTER_NAME, Role.OPERATOR), Member(CLUSTER_NAME, Role.READER)]
    members += [Member(CLUSTER_NAME, Role.POD, f"muster-{ordinal}") for ordinal in range(pods)]
    return CertificateFolder(data.certificates, CLUSTER_NAME, members, HOSTS)


class LocalTls:
    """Certificates of a running instance. `operator`: for calls of pods."""

    def __init__(self, data: DataDir, pods: int, report: Callable[[str], None]) -> None:
        """Makes what is missing. `report` takes lines for the person. Raises OSError, ValueError, TlsError."""
        self._folder = certificate_folder(data, pods)
        self._data = data
        self._report = report
        self._folder.keep()
        self.operator = member_tls(data, Role.OPERATOR)

    def pod_options(self, pod: str) -> list[str]:
        """Options of the pod's process."""
        return ["--tls-dir", str(self._data.certificates / pod), "--cluster", CLUSTER_NAME]

    async def run(self) -> None:
        """Renew in time, until cancelled."""
        for look in count(1):
            await asyncio.sleep(LOOK_EVERY_S)
            self.operator.look()
            if look % KEEP_EVERY == 0:
                self._keep()

    def _keep(self) -> None:
        try:
            self._folder.keep()
        except (OSError, ValueError) as error:
            self._report(f"certificates cannot be renewed: {error}")
