"""`muster backup create` in child processes that meet a fault each, every one at another step.

`python -m tests.support.backup_steps killed|full|failing STORE DATA_DIR TIMES` prints a JSON object for each child: the
step, how often the child had come to a step of this kind, its exit code (-9: killed), and the manifests that are in the
store then. A first child has no fault, and says which kinds of steps there are. The others meet theirs at the first
step of a kind, the second and so on, at most TIMES; a child that has fewer steps of a kind meets none.

Steps are a call of a pod, before it is sent and after it was answered; and each time that a file of the store, or of
the scratch directory, is opened, synced, renamed, removed, or a directory is made. A store that is full or fails
answers ENOSPC to what writes, or EIO, from that step on.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import muster_cli.backup.create
import muster_cli.backup.object_store
import muster_cli.backup.site  # noqa: F401
from muster_cli.backup.manifest import BACKUPS
from muster_cli.main import cli
from muster_coordinator.podapi.client import PodClient

ERRORS = {"full": errno.ENOSPC, "failing": errno.EIO}
FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove")
WRITES = ("create", "rename", "mkdir", "sync")


class Steps:
    """Writes the kinds of all steps of this process to `met`; or does at step number `at` of the kind `wanted` what
    `fault` says, and writes only that one."""

    def __init__(self, fault: str, wanted: str, at: int, store: Path, met: int) -> None:
        self._fault = fault
        self._wanted = wanted
        self._left = at
        self._store = f"{store}/"
        self._met = met
        self._broken = False

    def watch(self) -> None:
        send, sync = PodClient._send, os.fsync

        async def sent(pod: PodClient, method: str, path: str, *args: Any) -> tuple[int, bytes]:
            what = f"{method} {re.sub('/.*', '/...', path.removeprefix('/v1/'))}"
            self._pod(f"pod: before {what}")
            answer = await send(pod, method, path, *args)
            self._pod(f"pod: after {what}")
            return answer

        def synced(descriptor: int) -> None:
            self._file("sync", os.readlink(f"/proc/self/fd/{descriptor}"))
            sync(descriptor)

        PodClient._send = sent  # type: ignore[method-assign, assignment]
        os.fsync = synced  # type: ignore[assignment]
        sys.addaudithook(self._audited)

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in FILE_EVENTS or not isinstance(args[0], str | Path):
            return
        what = event.removeprefix("os.")
        if event == "open" and args[2] & os.O_CREAT:
            what = "create"
        self._file(what, str(args[0]))

    def _pod(self, name: str) -> None:
        if self._fault == "killed":
            self._step(name)

    def _file(self, what: str, path: str) -> None:
        inside = f"{path}/".startswith(self._store)
        if not inside and ("muster-backup-" not in path or self._fault != "killed"):
            return
        kind = (path.removeprefix(self._store).partition("/")[0] if path != self._store[:-1] else "") or "root"
        if self._fault != "full" or what in WRITES:
            self._step(f"store: {what} {kind}" if inside else f"scratch: {what}")
            if self._broken and what != "remove":
                raise OSError(ERRORS[self._fault], os.strerror(ERRORS[self._fault]), path)

    def _step(self, name: str) -> None:
        if not self._wanted:
            os.write(self._met, f"{name}\n".encode())
        if name != self._wanted:
            return
        self._left -= 1
        if self._left == 0:
            os.write(self._met, name.encode())
            self._broken = self._fault != "killed"
            if not self._broken:
                os.kill(os.getpid(), signal.SIGKILL)


def child(fault: str, wanted: str, at: int, store: Path, data: Path) -> tuple[str, int]:
    """Returns the steps that it told of, and the exit code."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(readable)
        Steps(fault, wanted, at, store, writable).watch()
        done = CliRunner().invoke(cli, ["backup", "create", "--store", str(store), "--data-dir", str(data)])
        if done.exit_code:
            print(done.output, file=sys.stderr)
        os._exit(done.exit_code)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        told = pipe.read().decode()
    return told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(fault: str, place: str, data: str, times: str) -> None:
    store = Path(place)

    def run(wanted: str, at: int) -> str:
        told, code = child(fault, wanted, at, store, Path(data))
        there = sorted(each.stem for each in (store / BACKUPS).glob("*.json"))
        name = told if wanted else ""
        print(json.dumps({"name": name, "time": at, "code": code, "backups": there}), flush=True)
        return told

    for kind in dict.fromkeys(run("", 0).splitlines()):
        for at in range(1, int(times) + 1):
            if not run(kind, at):
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
