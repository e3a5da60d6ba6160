"""Pods and gateways to attack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.bodies import BIG_PARTITIONS
from tests.attacks.catalogue import Attack
from tests.attacks.children import Child
from tests.attacks.errors import HarnessError, Skipped
from tests.attacks.site import OWNER, PASSWORD, STRANGER, Target
from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.gateway import GatewayProcess
from tests.support.pod import SoloPod
from tests.support.scram import users_file

PARTITIONS = 8
GROUPS_AT_MUSTER = "m-"
READY_S = 30.0
DISK_BYTES = 128 << 20


@dataclass
class Place:
    """`pid`: of the process that is attacked, whose memory counts."""

    pod: SoloPod
    target: Target
    pid: int


class ClockedPod(SoloPod):
    program = (sys.executable, "-m", "tests.attacks.clocked_pod")


@asynccontextmanager
async def place(attack: Attack, directory: Path) -> AsyncIterator[Place]:
    """Raises Skipped or HarnessError."""
    async with AsyncExitStack() as stack:
        data = directory / "data"
        if attack.disk:
            stack.enter_context(own_file_system(data))
            data = data / "pod"
        pod = (ClockedPod if attack.clock else SoloPod)(
            data, PARTITIONS, {"t": BIG_PARTITIONS}, [*settings(attack, directory), *attack.config]
        )
        await stack.enter_async_context(pod)
        assert pod.process is not None
        pid = pod.process.pid
        target = Target(
            port=pod.kafka_port,
            tls=attack.tls,
            logins=attack.logins,
            api_port=pod.api_port,
            peer_port=pod.peer_port,
            pod_pid=pid,
            data_dir=str(data),
        )
        if attack.gateway:
            broker = await stack.enter_async_context(Child("tests.attacks.broker"))
            upstream = f"127.0.0.1:{await broker.line(READY_S)}"
            own = {"muster.groups": GROUPS_AT_MUSTER}
            if attack.tls:
                own["listener.tls.dir"] = str(certificates(directory))
            gateway = GatewayProcess(directory, upstream, f"127.0.0.1:{pod.kafka_port}", own)
            await stack.enter_async_context(gateway)
            target = Target(port=gateway.port, prefix=GROUPS_AT_MUSTER, tls=attack.tls)
            pid = gateway.pid
        yield Place(pod, target, pid)


def settings(attack: Attack, directory: Path) -> list[str]:
    found = ["group.initial.rebalance.delay.ms=500", "group.min.session.timeout.ms=1000"]
    if attack.tls and not attack.gateway:
        found.append(f"muster.listener.tls.dir={certificates(directory)}")
    if attack.logins:
        users, acls = directory / "users.json", directory / "acls.json"
        users.write_text(users_file({OWNER: PASSWORD, STRANGER: PASSWORD}))
        acls.write_text(json.dumps({"acls": []}))
        mechanisms = "SCRAM-SHA-256,SCRAM-SHA-512" + (",PLAIN" if attack.tls else "")
        found += [f"sasl.enabled.mechanisms={mechanisms}", f"muster.users.file={users}"]
        found += [f"muster.acls.file={acls}", f"super.users=User:{OWNER}"]
    return found


def certificates(directory: Path) -> Path:
    return Authority(directory / "certificates").write("server", member("pod-0")).certificate.parent


class own_file_system:
    """A small one in memory, at `path`. Raises Skipped where this user may not mount."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._path.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self._path)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
            raise Skipped("a file system of its own needs root and the right to mount")

    def __exit__(self, *exc: object) -> None:
        if subprocess.run(["umount", "-l", str(self._path)], check=False).returncode:
            raise HarnessError(f"{self._path} stays mounted")
