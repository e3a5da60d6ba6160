"""The instance that `muster local up` runs on a data directory, as one cluster."""

from __future__ import annotations

import time

from muster_cli.local.data_dir import DataDir, RunRecord
from muster_cli.local.declare import CLUSTER
from muster_cli.oncall.seen import OperatorSeen, PodSeen, Seen, Unreachable
from muster_operator.store.port import StoreError
from muster_operator.store.sqlite import SqliteStore


class EmbeddedReader:
    """Implements `seen.Reader`."""

    def __init__(self, data: DataDir) -> None:
        self.data = data

    def running(self) -> RunRecord:
        """The instance that runs there. Raises Unreachable if nothing does."""
        record = self.data.read_run()
        if record is None or not (record.supervisor.alive() or any(pod.alive for pod in record.pods)):
            raise Unreachable(
                f"nothing runs on {self.data.root}; start it with: muster local up --data-dir {self.data.root}"
            )
        return record

    async def look(self) -> tuple[Seen, ...]:
        record = self.running()
        try:
            store = SqliteStore(self.data.store)
            try:
                records = await store.observe(CLUSTER)
            finally:
                store.close()
        except StoreError as error:
            raise Unreachable(f"{self.data.store}: {error}") from error
        if records.cluster is None:
            raise Unreachable(f"the instance on {self.data.root} has declared nothing yet")
        pods = tuple(PodSeen(pod.name, "Running" if pod.alive else "Ended", pod.alive) for pod in record.pods)
        alive = record.supervisor.alive()
        operator = OperatorSeen(f"pid {record.supervisor.pid}", time.time() if alive else 0.0)
        return (Seen(records.cluster, records.topics, records.partitions, pods, records.users, operator),)
