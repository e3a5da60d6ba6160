"""The pod that has each replica, and its address: from the metadata image, and from pods that connect here.

A pod that connects knows more than the image of this pod: the operator may have told it earlier.
"""

from __future__ import annotations

from collections import defaultdict

from muster_coordinator.podapi.image import MetadataImage

Address = tuple[str, int]

SHOWN_MAX = 100_000
"""At most this many replicas are learned from messages; above that only the image counts, or what a pod says it has."""


class PeerAddresses:
    """The addresses that `pod` knows. Until the first image `cluster_id` is "" and everything is empty."""

    def __init__(self, pod: str) -> None:
        self.cluster_id = ""
        self.sharing: frozenset[str] = frozenset()
        """Other pods that the image gives a replica of a partition of which this pod has one too."""
        self._pod = pod
        self._addresses: dict[str, Address] = {}
        self._by_log_id: dict[str, str] = {}
        self._by_pod: dict[str, list[str]] = {}
        self._guests: dict[str, Address] = {}  # pods that connected here
        self._shown: dict[str, str] = {}  # log id -> guest that sent a message of it

    def update(self, image: MetadataImage) -> None:
        """An operator that was just started does not know the address of a pod that is down: the last known one
        stays."""
        self.cluster_id = image.cluster_id
        placed = {p.pod for p in image.places}
        addresses = {p.pod: (p.host, p.port) for p in image.peers if p.pod != self._pod}
        self._addresses = {pod: at for pod, at in self._addresses.items() if pod in placed} | addresses
        self._guests = {pod: at for pod, at in self._guests.items() if pod not in addresses}
        self._by_log_id = {p.log_id: p.pod for p in image.places}
        by_pod: defaultdict[str, list[str]] = defaultdict(list)
        for place in image.places:
            by_pod[place.pod].append(place.log_id)
        self._by_pod = dict(by_pod)
        here = {p.partition for p in image.places if p.pod == self._pod}
        self.sharing = frozenset(
            p.pod for p in image.places if p.partition in here and p.pod in self._addresses and p.pod != self._pod
        )

    def pod_of(self, log_id: str) -> str | None:
        return self._shown.get(log_id) or self._by_log_id.get(log_id)

    def address_of(self, pod: str) -> Address | None:
        """The address of any other pod, whether it shares a partition or not; None: it is not known."""
        return self._addresses.get(pod) or self._guests.get(pod)

    def log_ids_of(self, pod: str) -> list[str]:
        shown = [log_id for log_id, guest in self._shown.items() if guest == pod]
        return [*self._by_pod.get(pod, ()), *shown]

    @property
    def wanted(self) -> dict[str, Address]:
        """Pods to be connected to, with their addresses: those that share a partition, and those that connected
        here."""
        guests = {pod: self._addresses.get(pod, address) for pod, address in self._guests.items()}
        return guests | {pod: self._addresses[pod] for pod in sorted(self.sharing)}

    def guest(self, pod: str, address: Address) -> None:
        """`pod` connected here, and says that it listens at `address`. So it shares a partition by its image: the
        next one that comes here decides whether it is so."""
        self._guests[pod] = address

    def guest_left(self, pod: str) -> None:
        self._guests.pop(pod, None)
        self._shown = {log_id: guest for log_id, guest in self._shown.items() if guest != pod}

    def show(self, log_id: str, pod: str) -> None:
        """A message of replica `log_id` came from `pod`."""
        if self._by_log_id.get(log_id) == pod:
            self._shown.pop(log_id, None)
        elif len(self._shown) < SHOWN_MAX:
            self._shown[log_id] = pod


def parse_address(text: str) -> Address:
    """HOST:PORT. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) <= 65535:
        raise ValueError(f"{text[:100]!r} is not of the form HOST:PORT")
    return host, int(port)
