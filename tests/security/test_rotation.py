"""Certificates change under load: every leaf and the CA three times, and nobody notices."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tests.support.committing import Load
from tests.support.local_cluster import LocalCluster

from muster_cli.local.certificates import certificate_folder
from muster_cli.local.data_dir import DataDir
from muster_cli.local.tls import CLUSTER_NAME
from muster_operator.certificates.folder import CertificateFolder
from muster_operator.certificates.rotation import Authorities, announced, switched

pytestmark = [pytest.mark.integration, pytest.mark.long]

PODS = 3
GROUPS = 20
READ = '"event": "tls_files_read"'


class Rotated:
    """The certificates of a running cluster, exchanged as its keeper does it, but at once."""

    def __init__(self, data: DataDir) -> None:
        self._data = data
        self._folder: CertificateFolder = certificate_folder(data, PODS)

    async def leaves(self) -> None:
        await self._until_read(self._folder.renew_leaves)

    async def authority(self) -> None:
        before = self._folder.authorities()
        assert before is not None
        now = datetime.now(UTC)
        following = announced(before, CLUSTER_NAME, now)
        for step in (following, switched(following, now), Authorities(switched(following, now).current, now)):
            await self._until_read(partial(self._folder.put, step))

    async def _until_read(self, change: Callable[[], None]) -> None:
        before = self._reads()
        change()
        async with asyncio.timeout(30):
            while not all(now - then >= 4 for now, then in zip(self._reads(), before, strict=True)):
                await asyncio.sleep(0.05)

    def _reads(self) -> list[int]:
        return [(self._data.logs / f"muster-{n}.log").read_text().count(READ) for n in range(PODS)]


async def test_leaf_and_authority_change_three_times_under_load(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    with LocalCluster(tmp_path, "--tls", "--partitions", "6", "--any-topic") as cluster:
        bootstrap = await asyncio.to_thread(cluster.wait_ready)
        load = Load(bootstrap, GROUPS)
        committing = asyncio.create_task(load.run())
        rotated, pids = Rotated(data), cluster.run_record()["pods"]
        first = certificate_folder(data, PODS).authorities()
        for _ in range(3):
            await rotated.leaves()
            await rotated.authority()
        load.stop()
        await committing
        last = certificate_folder(data, PODS).authorities()
        assert first is not None
        assert last is not None
        assert last.current.certificate != first.current.certificate
        assert load.failed == []
        assert min(load.acked.values()) > 20
        assert cluster.run_record()["pods"] == pids, "a pod was restarted"
        logs = [(data.logs / f"muster-{n}.log").read_text() for n in range(PODS)]
        assert not any('"event": "peer_lost"' in log.split(READ, 4)[-1] for log in logs), "a connection was closed"
        # New connections are made with the new ones only: a pod that starts again finds the others.
        os.kill(pids[0]["pid"], signal.SIGKILL)
        await asyncio.to_thread(_wait_for_whole, cluster)
        await load.check_nothing_is_lost()


def _wait_for_whole(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + 40
    while True:
        report = cluster.status()
        pids = [pod["pid"] for pod in cluster.run_record()["pods"] if pod]
        if len(pids) == PODS and all(len(each["followers"]) == 2 for each in report["partitions"]):
            return
        assert time.monotonic() < deadline, report
        time.sleep(0.2)
