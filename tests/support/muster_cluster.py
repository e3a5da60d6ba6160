"""A Muster cluster on Kubernetes as a test sees it: through kubectl, and through its pods' addresses."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kube import kubectl

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.4
"""Pauses of a wait grow: each look at a cluster is a kubectl, a tenth of a second of a processor that it needs."""

SHOWN = ("coordinatorclusters", "offsetstopics", "offsetspartitions", "pods", "persistentvolumeclaims", "events")
"""Kinds in the summary of a cluster that did not become what a test waits for."""


@dataclass(frozen=True)
class Pod:
    """A coordinator pod; `restarts` counts the restarts of its container."""

    name: str
    uid: str
    address: str
    restarts: int
    ready: bool


@dataclass(frozen=True)
class Partition:
    """The status of an OffsetsPartition."""

    index: int
    leader: str | None
    epoch: int
    state: str


class MusterCluster:
    """A CoordinatorCluster and its OffsetsTopic in one namespace."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        return kubectl("-n", self.namespace, *arguments, stdin=stdin, check=check).stdout

    def objects(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-o", "json", *arguments))["items"]
        return items

    def wait_ready(self, timeout_s: int = 55) -> None:
        for kind in ("coordinatorclusters", "offsetstopics"):
            ready = ("--all", "--for=condition=Ready", f"--timeout={timeout_s}s")
            kubectl("-n", self.namespace, "wait", kind, *ready, timeout_s=timeout_s + 10)

    def pods(self) -> list[Pod]:
        return [_pod(each) for each in self.objects("pods", "-l", f"muster.dev/cluster={self.name}")]

    def bootstrap(self) -> str:
        return ",".join(f"{pod.address}:9092" for pod in self.pods() if pod.address)

    def partitions(self) -> dict[int, Partition]:
        return {each.index: each for each in map(_partition, self.objects("offsetspartitions"))}

    def row(self, partition: str) -> str:
        """The row that kubectl prints for an OffsetsPartition."""
        return " ".join(self.kubectl("get", "offsetspartition", partition, "--no-headers").split())

    def pod(self, name: str) -> Pod:
        """Raises LookupError while there is none: between its deletion and its creation."""
        for each in self.pods():
            if each.name == name:
                return each
        raise LookupError(f"no pod {name}")

    def replaced(self, pod: Pod) -> bool:
        """True if another pod has its name."""
        return any(each.name == pod.name and each.uid != pod.uid for each in self.pods())

    def kill_process(self, pod: Pod) -> None:
        """SIGKILL the pod's process from outside, as the kernel does to a process that takes too much memory."""
        os.kill(process_of(pod.uid), signal.SIGKILL)

    def delete(self, pod: Pod) -> None:
        self.kubectl("delete", "pod", pod.name, "--wait=false")

    def summary(self) -> str:
        return "\n".join(
            [
                self.kubectl("get", ",".join(SHOWN), "-o", "wide", check=False),
                self.kubectl("get", "coordinatorclusters", "-o", "jsonpath={.items[*].status}", check=False),
            ]
        )


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Ask again and again until it holds. Fails the test with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)


def _pod(item: dict[str, Any]) -> Pod:
    status = item["status"]
    containers = status.get("containerStatuses", [])
    return Pod(
        name=item["metadata"]["name"],
        uid=item["metadata"]["uid"],
        address=status.get("podIP", ""),
        restarts=sum(each["restartCount"] for each in containers),
        ready=bool(containers) and all(each["ready"] for each in containers),
    )


def _partition(item: dict[str, Any]) -> Partition:
    status = item.get("status", {})
    return Partition(item["spec"]["index"], status.get("leader"), status.get("epoch", -1), status.get("state", ""))


def process_of(pod_uid: str) -> int:
    """The process of this machine that runs as the coordinator of that pod."""
    return process_with("MUSTER_POD_UID", pod_uid)


def process_with(variable: str, value: str) -> int:
    """The process of this machine with that in its environment."""
    wanted = f"{variable}={value}".encode()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                return int(directory.name)
        except OSError:
            continue  # ended meanwhile
    raise AssertionError(f"no process with {variable}={value} on this machine")
