"""Elections under way and their failures: one at a time per partition, the next one held back with jitter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster_operator.api.conditions import Reason
from muster_operator.plan.observation import Attempt

__all__ = ["Attempts"]

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 5.0


@dataclass(slots=True)
class _Election:
    pod: str
    started: float
    tries: int = 1
    in_flight: bool = True
    not_before: float = 0.0
    reason: Reason | None = None
    message: str = ""


class Attempts:
    """Of one cluster. Times are monotonic seconds; `jitter` gives numbers in [0, 1)."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._elections: dict[str, _Election] = {}

    def start(self, partition: str, pod: str, now: float) -> None:
        before = self._elections.get(partition)
        self._elections[partition] = _Election(pod, now, 1 if before is None else before.tries + 1)

    def answer(self, partition: str, now: float, reason: Reason | None = None, message: str = "") -> None:
        """The call is over. Whatever it said, another one has to wait, unless the leader becomes ACTIVE (`settle`).

        The second try comes at once: a stale epoch is put right by the answer itself.
        """
        election = self._elections[partition]
        delay_s = 0.0
        if election.tries > 1:
            delay_s = min(FIRST_DELAY_S * 2.0 ** (election.tries - 2), MAX_DELAY_S) * (0.5 + 0.5 * self._jitter())
        election.in_flight = False
        election.not_before = now + delay_s
        election.reason, election.message = reason, message

    def settle(self, partition: str, now: float) -> float | None:
        """The partition has an active leader: forget its failures. How long the election took, if one was made."""
        election = self._elections.get(partition)
        if election is None or election.in_flight:
            return None
        del self._elections[partition]
        return now - election.started

    def forget(self, pods: Iterable[str]) -> None:
        """These pods were restarted: what failed before says nothing."""
        gone = set(pods)
        for partition, election in [*self._elections.items()]:
            if election.pod in gone and not election.in_flight:
                del self._elections[partition]

    def view(self, now: float) -> Mapping[str, Attempt]:
        return {
            partition: Attempt(each.in_flight, now < each.not_before, each.reason, each.message)
            for partition, each in self._elections.items()
            if each.in_flight or now < each.not_before
        }

    def next_due(self, now: float) -> float | None:
        """Seconds until the first partition that is held back may be elected again."""
        waits = [each.not_before - now for each in self._elections.values() if not each.in_flight]
        return min((wait for wait in waits if wait > 0), default=None)
