"""`muster backup create` in child processes that meet a fault each, every one at a later step.

`python -m tests.support.backup_steps killed|full|failing STORE DATA_DIR [EVERY]` prints a JSON object for each child:
the step, its number, the child's exit code (-9: killed), and the manifests that are in the store then. It ends when a
child met no fault, because it had no step of that number. With EVERY it leaves steps out: 1, 1 + EVERY and so on.

Steps are a call of a pod, before it is sent and after it was answered; and each time that a file of the store, or of
the scratch directory, is opened, synced, renamed, removed, or a directory is made or listed. A store that is full or
fails answers ENOSPC to what writes, or EIO, from that step on.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from itertools import count
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
FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.scandir", "os.listdir")
WRITES = ("create", "rename", "mkdir", "sync")


class Steps:
    """Counts the steps of this process, and does at number `at` what `fault` says."""

    def __init__(self, fault: str, at: int, store: Path, met: int) -> None:
        self._fault = fault
        self._left = at
        self._store = str(store)
        self._met = met
        self._name = ""

    def watch(self) -> None:
        send, sync = PodClient._send, os.fsync

        async def sent(pod: PodClient, method: str, path: str, *args: Any) -> tuple[int, bytes]:
            what = f"{method} {re.sub('[0-9a-f]{32}|[0-9]+$', '*', path.removeprefix('/v1/'))}"
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
        if path.startswith(self._store):
            kind = path.removeprefix(self._store).strip("/").partition("/")[0] or "root"
            name = f"store: {what} {kind}"
        elif "muster-backup-" in path and self._fault == "killed":
            name = f"scratch: {what}"
        else:
            return
        if self._fault != "full" or what in WRITES:
            self._step(name)
            if self._name and self._fault != "killed" and what != "remove":
                raise OSError(ERRORS[self._fault], os.strerror(ERRORS[self._fault]), path)

    def _step(self, name: str) -> None:
        self._left -= 1
        if self._left == 0:
            self._name = name
            os.write(self._met, name.encode())
            if self._fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)


def child(fault: str, at: int, store: Path, data: Path) -> tuple[str, int]:
    """Returns the step that was met ("": none), and the exit code."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(readable)
        Steps(fault, at, store, writable).watch()
        done = CliRunner().invoke(cli, ["backup", "create", "--store", str(store), "--data-dir", str(data)])
        if done.exit_code:
            print(done.output, file=sys.stderr)
        os._exit(done.exit_code)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        name = pipe.read().decode()
    return name, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(fault: str, store: str, data: str, every: str = "1") -> None:
    for at in count(1, int(every)):
        name, code = child(fault, at, Path(store), Path(data))
        there = sorted(each.name for each in (Path(store) / BACKUPS).glob("*.json"))
        print(json.dumps({"step": at, "name": name, "code": code, "backups": there}), flush=True)
        if not name:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
