"""What the pods of a cluster say of themselves, wherever they run, and waits on it."""

from __future__ import annotations

import signal
import ssl
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from tests.chaos.errors import HarnessError
from tests.chaos.network import Namespace

from muster_coordinator.podapi.fields import ADDRESSEE_HEADER
from muster_coordinator.podapi.models import PodStatus, ReplicaStatus
from muster_coordinator.states import ReplicaRole, ShardState

if TYPE_CHECKING:
    from tests.chaos.named import LeaderWatch

ASK_TIMEOUT_S = 0.5
DRAIN_TIMEOUT_S = 30.0
POLL_S = 0.5
"""Each look costs the API server and the pods what their groups might have needed."""
SETTLE_TIMEOUT_S = 60.0
STABLE_S = 1.0
CAUGHT_UP = 1000
"""A follower that lacks at most so many records of a log under load counts as caught up."""


@dataclass(frozen=True)
class Place:
    """A pod that runs now, as host:port."""

    name: str
    api: str
    kafka: str


class ObservedCluster(ABC):
    """`names` are those of all pods, running or not. Raises HarnessError where a wait is in vain."""

    def __init__(self, names: Sequence[str], partitions: int, factor: int) -> None:
        self.names = list(names)
        self.partitions = partitions
        self.factor = factor
        self.reader: ssl.SSLContext | None = None
        """With which pods are asked; None: their API has no TLS."""

    @abstractmethod
    def places(self) -> list[Place]:
        """The pods that run now."""

    @abstractmethod
    def last_words(self) -> str:
        """Something about the cluster for a failure."""

    def leader_watch(self) -> AbstractContextManager[LeaderWatch | None]:
        """Watch what `kubectl` says of the leaders; None where there is no Kubernetes."""
        return nullcontext()

    def place(self, pod: str) -> Place:
        for place in self.places():
            if place.name == pod:
                return place
        raise HarnessError(f"{pod} does not run")

    def kafka_address(self, pod: str) -> str:
        return self.place(pod).kafka

    def bootstrap(self) -> str:
        return ",".join(place.kafka for place in self.places())

    def statuses(self) -> dict[str, PodStatus]:
        """What each pod says; one that does not answer in time is left out."""
        return {place.name: status for place in self.places() if (status := _ask(place, self.reader)) is not None}

    def leaders(self) -> dict[str, int]:
        """How many partitions each pod leads, as it says itself."""
        return {name: len(_led(status)) for name, status in self.statuses().items()}

    def drain(self, pod: str) -> None:
        """Tell a pod that it will end soon: its leaders are moved away."""
        place = self.place(pod)
        request = urllib.request.Request(f"http://{place.api}/v1/drain", method="POST")
        request.add_header(ADDRESSEE_HEADER, pod)
        with urllib.request.urlopen(request, timeout=DRAIN_TIMEOUT_S):
            pass

    def wait(self, holds: Callable[[], bool], what: str, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """`holds` is asked for the first time after POLL_S: what was just done has its first moment to itself."""
        deadline = time.monotonic() + timeout_s
        time.sleep(POLL_S)
        while not holds():
            if time.monotonic() > deadline:
                raise HarnessError(f"not within {timeout_s:g} s: {what}; {self.describe()}")
            time.sleep(POLL_S)

    def wait_led(self, without: Sequence[str] = (), timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Until every partition has an ACTIVE leader, none of them among those pods."""

        def led() -> bool:
            seen = {index for name, status in self.statuses().items() if name not in without for index in _led(status)}
            return seen.issuperset(range(self.partitions))

        self.wait(led, "every partition is led" + (f" without {', '.join(without)}" if without else ""), timeout_s)

    def wait_settled(self) -> None:
        """Until every pod runs, every partition is led, every replica of it has caught up, and no leader moves."""
        stable_since, before = time.monotonic(), dict[int, int]()

        def settled() -> bool:
            nonlocal stable_since, before
            statuses = self.statuses()
            now = {index: each.leader_epoch for pod in statuses.values() for index, each in _led(pod).items()}
            if now != before or self._unsettled(statuses):
                stable_since, before = time.monotonic(), now
            return time.monotonic() - stable_since > STABLE_S

        self.wait(settled, "all replicas have caught up, and no leader moves")

    def wait_before_fault(self) -> None:
        """Until nothing of the fault before is under way."""
        self.wait_settled()

    def wait_even(self) -> None:
        """Until the pods lead equally many partitions, to within one."""

        def even() -> bool:
            leaders = self.leaders()
            # Each of the two topics is even by itself.
            return leaders.keys() == set(self.names) and max(leaders.values()) - min(leaders.values()) <= 2

        self.wait(even, "the pods lead equally many partitions")

    def _unsettled(self, statuses: Mapping[str, PodStatus]) -> str:
        missing = [name for name in self.names if name not in statuses]
        if missing:
            return f"{', '.join(missing)} does not answer"
        led = {index: status for pod in statuses.values() for index, status in _led(pod).items()}
        if len(led) < self.partitions:
            return f"{len(led)} of {self.partitions} partitions are led"
        shut = sum(each.log_end_offset < 0 for pod in statuses.values() for each in pod.partitions)
        if shut:  # of a pod that was started again: its leader does not know yet how far behind it is
            return f"{shut} logs are not open"
        behind = [str(index) for index, status in led.items() if not _caught_up(status, self.factor)]
        return f"partitions with replicas that have not caught up: {', '.join(behind)}" if behind else ""

    def describe(self) -> str:
        """Where things stand, for a failure."""
        said = f"{self._unsettled(self.statuses()) or 'settled'}; leaders: {self.leaders()}"
        return f"{said}; {self.last_words()}"


@dataclass(frozen=True)
class OperatorRules:
    """In the words of `Namespace.drop`: what the operator says to a pod, and what the pod says to it."""

    heard: str
    said: str


class NetworkedCluster(ObservedCluster):
    """One whose pods have networks of their own, and whose leaders the operator spreads."""

    def wait_before_fault(self) -> None:
        """Leaders go back to a pod ten seconds after it came back: in the middle of the next fault, groups that it
        spares would see these moves; before that, a pod may lead everything, and no group is spared."""
        if self.factor > 1:
            self.wait_even()
        self.wait_settled()

    @abstractmethod
    def signal_process(self, pod: str, number: signal.Signals) -> None:
        """To the pod's process, if there is one now."""

    @abstractmethod
    def namespace(self, pod: str) -> Namespace:
        """Where the pod's network can be cut. Raises Skipped, HarnessError."""

    @abstractmethod
    def operator_rules(self, pod: str) -> OperatorRules:
        """How the operator is known in the pod's network."""


def _led(status: PodStatus) -> dict[int, ReplicaStatus]:
    return {
        each.partition: each
        for each in status.partitions
        if each.state is ShardState.ACTIVE and each.role is ReplicaRole.LEADER
    }


def _caught_up(leader: ReplicaStatus, factor: int) -> bool:
    if leader.previous_replicas or (factor > 1 and len(leader.replicas) != factor):
        return False
    good = sum(
        not each.rebuilding and each.end_offset >= leader.log_end_offset - CAUGHT_UP
        for each in leader.followers
        if each.log_id in leader.replicas
    )
    return good >= factor - 1


def _ask(place: Place, reader: ssl.SSLContext | None) -> PodStatus | None:
    scheme = "http" if reader is None else "https"
    request = urllib.request.Request(f"{scheme}://{place.api}/v1/status", headers={ADDRESSEE_HEADER: place.name})
    try:
        with urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S, context=reader) as answer:
            return msgspec.json.decode(answer.read(), type=PodStatus)
    except (OSError, msgspec.DecodeError):  # URLError is an OSError
        return None
