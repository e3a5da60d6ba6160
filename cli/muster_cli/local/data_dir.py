"""The data directory of one embedded instance.

muster.db           the operator's store (SQLite): cluster, topic, partitions with leader and epoch
run.json            the processes that run now: the supervisor and its pods, with addresses
lock                the supervisor holds it while it runs
logs/NAME.log       output of each pod
logs/operator.log   log of the operator
pods/NAME/          data directory of each pod: journal and segments
tls/                with `--tls`: the CA, and a directory for each certificate
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from muster_cli.errors import CliError
from muster_cli.local.procfs import ProcessRef


class RunningPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod as its supervisor started it last. `process` is None while the pod waits for its restart."""

    name: str
    node_id: int
    kafka_address: str
    api_address: str
    process: ProcessRef | None
    peer_address: str = ""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive()


class RunRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The content of run.json."""

    supervisor: ProcessRef
    pods: tuple[RunningPod, ...]
    tls: bool = False
    gateway: RunningPod | None = None
    """The gateway, with `--upstream`."""

    @property
    def bootstrap(self) -> str:
        return ",".join(pod.kafka_address for pod in self.pods)


def default_data_dir() -> Path:
    """$MUSTER_DATA_DIR, else muster/local under $XDG_DATA_HOME (~/.local/share)."""
    chosen = os.environ.get("MUSTER_DATA_DIR")
    if chosen:
        return Path(chosen)
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share) / "muster" / "local"


class DataDir:
    """The paths of one embedded instance, its lock and its run record."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.store = self.root / "muster.db"
        self.logs = self.root / "logs"
        self.certificates = self.root / "tls"
        self._run_file = self.root / "run.json"
        self._lock_file = self.root / "lock"

    def create(self) -> None:
        """Make the directories. Raises CliError if that fails."""
        try:
            for directory in (self.root, self.logs, self.root / "pods"):
                directory.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CliError(f"cannot use {self.root} as data directory: {error.strerror}") from error

    def pod(self, name: str) -> Path:
        return self.root / "pods" / name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the instance. Raises CliError if another supervisor holds it. It ends with the process."""
        with self._lock_file.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                record = self.read_run()
                who = f" (pid {record.supervisor.pid})" if record is not None else ""
                raise CliError(
                    f"another `muster local up`{who} runs on {self.root}; stop it, or choose another --data-dir"
                ) from None
            yield

    def write_run(self, record: RunRecord) -> None:
        """Replace run.json in one step: a reader sees the old or the new content."""
        temporary = self._run_file.with_suffix(".json.new")
        temporary.write_bytes(msgspec.json.encode(record) + b"\n")
        temporary.replace(self._run_file)

    def read_run(self) -> RunRecord | None:
        """The content of run.json; None if there is none, or if it cannot be decoded."""
        try:
            return msgspec.json.decode(self._run_file.read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def remove_run(self) -> None:
        self._run_file.unlink(missing_ok=True)

    def leftover_pods(self) -> list[RunningPod]:
        """The pods of an earlier supervisor that still run, and its gateway. Call it only while holding the lock.

        Such a pod is the recorded process, and its command line names this instance's directory.
        """
        record = self.read_run()
        if record is None:
            return []
        processes = [*record.pods, *([record.gateway] if record.gateway is not None else [])]
        return [pod for pod in processes if pod.process is not None and pod.alive and self._is_ours(pod)]

    def _is_ours(self, pod: RunningPod) -> bool:
        assert pod.process is not None
        return str(self.pod(pod.name)) in pod.process.command_line()
