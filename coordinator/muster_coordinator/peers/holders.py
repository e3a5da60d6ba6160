"""The pods that have each replica, as they say themselves: a log id on two volumes is a volume too many.

A copied volume has the log ids of the other one. Both would ack and vote as one replica, and two majorities of a set
might share none. So this pod takes nothing from such a replica and sends it nothing, wherever it is, and a pod that
has it itself stops it (`Replicas.doubled`). Source: replication.md, "Identity".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from muster_coordinator.peers.addresses import SHOWN_MAX


class Holders:
    """`doubled`: log id -> the pods that have it, where these are several."""

    def __init__(self, pod: str) -> None:
        self.doubled: dict[str, str] = {}
        self._pod = pod
        self._held: dict[str, dict[int, str]] = {}  # other pod -> partition -> log id

    def announced(self, pod: str, log_ids: Mapping[int, str]) -> None:
        """All that `pod` has now, by partition."""
        self._held[pod] = dict(log_ids)

    def shown(self, pod: str, partition: int, log_id: str) -> bool:
        """A message of that replica came from `pod`. True if `pod` had not said that it has it."""
        held = self._held.setdefault(pod, {})
        if held.get(partition) == log_id or len(held) >= SHOWN_MAX:
            return False
        held[partition] = log_id
        return True

    def left(self, pod: str) -> None:
        """The connection on which it said so is gone."""
        self._held.pop(pod, None)

    def look(self, own: Mapping[int, str], is_lost: Callable[[str], bool]) -> bool:
        """Find what is doubled, with `own` replicas of this pod by partition. True if that changed.

        A pod that is lost does not count: its volume may have been moved. Once two were heard, both stay refused until
        the connection of one is gone, or until that one has the log no more.
        """
        holders: defaultdict[str, set[str]] = defaultdict(set)
        for pod, log_ids in ((self._pod, own), *self._held.items()):
            for log_id in log_ids.values():
                holders[log_id].add(pod)
        before, self.doubled = self.doubled, {}
        for log_id, pods in holders.items():
            if len(pods) > 1 and (log_id in before or sum(not is_lost(pod) for pod in pods) > 1):
                self.doubled[log_id] = ", ".join(sorted(pods))
        return self.doubled != before
