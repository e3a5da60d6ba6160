"""Elections under way and what was answered: one at a time per partition, the next one held back with jitter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from muster_coordinator.calls import CallResult, CallStatus
from muster_operator.api.conditions import Reason
from muster_operator.plan.observation import Attempt

__all__ = ["Attempts", "attempt_of"]

FIRST_DELAY_S = 0.05
"""Before the second attempt to elect; it doubles with each further one."""
MAX_DELAY_S = 5.0
"""The longest pause between two attempts."""
SOON_S = 1.0
"""Elections mostly end within this time. Moves one after the other, as of a pod that drains, go on for longer."""
REFUSED_S = 1.0
"""A pod that said that it cannot lead is not asked again for so long, if there is another one."""


_REASONS = {
    CallStatus.STALE_EPOCH: Reason.STALE_EPOCH,
    CallStatus.WRONG_REPLICA: Reason.LOG_LOST,
    CallStatus.CANNOT_WRITE: Reason.CANNOT_WRITE,
    CallStatus.DAMAGED: Reason.LOG_DAMAGED,
    CallStatus.INVALID: Reason.ELECTING,
    CallStatus.SET_CONFLICT: Reason.SET_CONFLICT,
    CallStatus.LEADER_LIVES: Reason.LEADER_LIVES,
    CallStatus.BETTER_LOG: Reason.BETTER_LOG,
    CallStatus.NO_MAJORITY: Reason.NO_MAJORITY,
}
_REFUSALS = frozenset((CallStatus.WRONG_REPLICA, CallStatus.CANNOT_WRITE, CallStatus.DAMAGED))
"""This pod cannot lead the partition now; another one may."""


@dataclass(slots=True)
class _Election:
    pod: str
    epoch: int
    started: float
    tries: int = 1
    in_flight: bool = True
    not_before: float = 0.0
    result: CallResult | None = None  # None: none yet, or no answer came
    reason: Reason | None = None  # why it was called, and ELECTING when no answer came
    message: str = ""  # why it was called, or why no answer came


class Attempts:
    """Of one cluster. Times are monotonic seconds; `jitter` gives numbers in [0, 1)."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._elections: dict[str, _Election] = {}
        self._refused: dict[str, dict[str, float]] = {}  # partition -> pod -> until when
        self._busy_since = 0.0  # with calls, without a break

    def start(
        self, partition: str, pod: str, epoch: int, now: float, reason: Reason | None = None, message: str = ""
    ) -> None:
        """`reason`, `message`: why it is called, which is what `view` says until there is an answer."""
        if not any(each.in_flight for each in self._elections.values()):
            self._busy_since = now
        before = self._elections.get(partition)
        tries = 1 if before is None else before.tries + 1
        self._elections[partition] = _Election(pod, epoch, now, tries, reason=reason, message=message)

    def answered(self, partition: str, epoch: int, now: float, result: CallResult) -> None:
        """The election of this epoch has this result. Whatever it is, the next election has to wait, unless the leader
        becomes ACTIVE (`settle`).

        The second try comes at once: the result itself puts right a stale epoch, or names a better log elsewhere.
        """
        election = self._end(partition, epoch, now)
        if election is not None:
            election.result = result
            if result.status in _REFUSALS:
                until = max(now + REFUSED_S, election.not_before)
                self._refused.setdefault(partition, {})[election.pod] = until

    def unanswered(self, partition: str, epoch: int, now: float, message: str) -> None:
        """The election of this epoch has no result: the call failed, as `message` says."""
        election = self._end(partition, epoch, now)
        if election is not None:
            election.reason, election.message = Reason.ELECTING, message

    def _end(self, partition: str, epoch: int, now: float) -> _Election | None:
        """None: the election was given up before, because its pod died."""
        election = self._elections.get(partition)
        if election is None or election.epoch != epoch:
            return None
        delay_s = 0.0
        if election.tries > 1:
            delay_s = min(FIRST_DELAY_S * 2.0 ** (election.tries - 2), MAX_DELAY_S) * (0.5 + 0.5 * self._jitter())
        election.in_flight = False
        election.not_before = now + delay_s
        return election

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
        for refusals in self._refused.values():
            for pod in gone & refusals.keys():
                del refusals[pod]

    def view(self, now: float) -> Mapping[str, Attempt]:
        self._refused = {
            partition: left
            for partition, refusals in self._refused.items()
            if (left := {pod: until for pod, until in refusals.items() if now < until})
        }
        return {
            partition: self._view(partition, now)
            for partition in dict.fromkeys((*self._elections, *self._refused))
            if partition in self._refused or self._is_recent(self._elections[partition], now)
        }

    def _is_recent(self, election: _Election, now: float) -> bool:
        """Or its result names what the next election needs."""
        result = election.result
        names = result is not None and bool(result.better_log_id or result.replicas)
        return election.in_flight or now < election.not_before or names

    def _view(self, partition: str, now: float) -> Attempt:
        election = self._elections.get(partition)
        refused = frozenset(self._refused.get(partition, ()))
        if election is None:
            return Attempt(False, False, refused=refused)
        if election.result is not None:
            shown = attempt_of(election.pod, election.epoch, election.result)
        else:
            shown = Attempt(False, False, election.reason, election.message, election.pod)
        return replace(shown, in_flight=election.in_flight, held_back=now < election.not_before, refused=refused)

    def are_under_way(self, now: float) -> bool:
        """Elections were called a moment ago, and their answers are about to come. Not without end: what waits for a
        break is done after a while when there is none.
        """
        return now < self._busy_since + SOON_S and any(each.in_flight for each in self._elections.values())

    def next_due(self, now: float) -> float | None:
        """Seconds until the first partition that is held back may be elected again, or nobody waits for answers."""
        ends = [each.not_before for each in self._elections.values() if not each.in_flight]
        ends += [self._busy_since + SOON_S for each in self._elections.values() if each.in_flight]
        ends += [until for refusals in self._refused.values() for until in refusals.values()]
        return min((end - now for end in ends if end > now), default=None)


def attempt_of(pod: str, epoch: int, result: CallResult) -> Attempt:
    """What the result of the election of `pod` in `epoch` says to a plan."""
    text = f"{result.status.value} {result.message}".rstrip()
    return Attempt(
        in_flight=False,
        held_back=False,
        reason=_REASONS.get(result.status),
        message=f"pod {pod} in epoch {epoch}: {text}",
        pod=pod,
        refused=frozenset((pod,) if result.status in _REFUSALS else ()),
        better=result.better_log_id,
        sets=(result.replicas, result.previous_replicas) if result.replicas else None,
    )
