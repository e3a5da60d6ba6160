"""Watches of the custom resources of a Kubernetes: one object of each state that it had them in."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tests.support.gitops import Json
from tests.support.kube import NAMESPACE_WITHOUT_OPERATOR

from muster_operator.api.crds import KINDS
from muster_operator.api.meta import GROUP, VERSION

AGAIN_S = 2.0
DECIDING = ("Stalled", "Reconciling", "Degraded", "Damaged", "CrdOutdated", "CertificatesDue", "Mirrored")


class WatchedObjects:
    """`states`: the first object with each generation seen or not, reasons and flags."""

    def __init__(self) -> None:
        self.states: dict[tuple[object, ...], Json] = {}
        self._ended = threading.Event()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._threads = [threading.Thread(target=self._watch, args=(each.plural,), daemon=True) for each in KINDS]

    def begin(self) -> None:
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self._ended.set()
        for process in self._running.values():
            process.kill()
        for each in self._threads:
            each.join(timeout=10)

    def _watch(self, plural: str) -> None:
        """Watches until the end: a watch lasts for half an hour at most, and not beyond a change of its definition."""
        path = f"/apis/{GROUP}/{VERSION}/{plural}?watch=true"
        while not self._ended.is_set():
            command = ["kubectl", "get", "--raw", path]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                self._running[plural] = process
                if self._ended.is_set():  # since the loop asked: `end` may not have seen this process
                    process.kill()
                assert process.stdout is not None
                self._read(process.stdout)
            self._ended.wait(AGAIN_S)

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            event: Json = json.loads(line) if line.endswith("\n") else {"type": "cut short"}
            if event["type"] in ("ADDED", "MODIFIED"):
                self._see(event["object"])

    def _see(self, shown: Json) -> None:
        if not shown["metadata"]["namespace"].startswith(NAMESPACE_WITHOUT_OPERATOR):
            shown["metadata"].pop("managedFields", None)
            self.states.setdefault(_state(shown), shown)


def _state(shown: Json) -> tuple[object, ...]:
    """Everything that a health check may read, but for numbers of pods and texts."""
    meta, status = shown["metadata"], shown.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    return (
        shown["kind"],
        "deletionTimestamp" in meta,
        meta["generation"] == ready.get("observedGeneration"),
        meta["generation"] == status.get("observedGeneration"),
        (ready.get("status"), ready.get("reason")),
        tuple(conditions.get(each, {}).get("status") for each in DECIDING),
        status.get("state"),
    )


@contextmanager
def watched_objects(there_is_a_cluster: bool) -> Iterator[WatchedObjects]:
    watched = WatchedObjects()
    if not there_is_a_cluster:
        yield watched
        return
    watched.begin()
    try:
        yield watched
    finally:
        watched.end()
