"""The changes in a pod, told to those that watch it: the pod API's streams."""

from __future__ import annotations

from typing import Protocol


class PodWatcher(Protocol):
    def partition_changed(self, partition: int) -> None:
        """Something changed that the status of this partition shows."""
        ...

    def pod_changed(self) -> None:
        """Something changed that the status of the pod shows."""
        ...


class PodEvents:
    """Made before everything else in a pod. Passes each event on to all that watch, in the order in which they came."""

    def __init__(self) -> None:
        self._watchers: list[PodWatcher] = []

    def watch(self, watcher: PodWatcher) -> None:
        """Call `watcher` from now on."""
        self._watchers.append(watcher)

    def partition_changed(self, partition: int) -> None:
        for watcher in self._watchers:
            watcher.partition_changed(partition)

    def pod_changed(self) -> None:
        for watcher in self._watchers:
            watcher.pod_changed()
