"""Elections that are under way, and their results: one at a time for each partition, and a pause after failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from muster_coordinator.calls import CallResult, CallStatus
from muster_operator.api.conditions import Reason
from muster_operator.plan.observation import Attempt

FIRST_DELAY_S = 0.05
"""Wait before the third election of a partition. It doubles with each further one, up to MAX_DELAY_S, with jitter."""
MAX_DELAY_S = 5.0
"""The longest pause between two attempts of an election, a reconcile, or a call that failed."""
SOON_S = 1.0
"""Elections mostly end within this time. A series of moves, as of a pod that drains, takes longer. A pod that refused
to lead is not asked again within it if another pod can lead."""


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
"""The pod that answers this cannot lead the partition now; another pod may."""


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
    """The elections of one cluster. Times are monotonic seconds; `jitter` returns numbers in [0, 1)."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._elections: dict[str, _Election] = {}
        self._refused: dict[str, dict[str, float]] = {}  # partition -> pod -> until when
        self._busy_since = 0.0  # at least one call has been under way since then

    def start(
        self, partition: str, pod: str, epoch: int, now: float, reason: Reason | None = None, message: str = ""
    ) -> None:
        """The election is called now. `view` shows `reason` and `message` until there is an answer."""
        if not any(each.in_flight for each in self._elections.values()):
            self._busy_since = now
        before = self._elections.get(partition)
        tries = 1 if before is None else before.tries + 1
        self._elections[partition] = _Election(pod, epoch, now, tries, reason=reason, message=message)

    def answered(self, partition: str, epoch: int, now: float, result: CallResult) -> None:
        """The election of `epoch` has this result. The next election of the partition waits, unless the leader becomes
        ACTIVE (`settle`). Only the second election does not wait: the result of the first one corrects a stale epoch,
        or names the better log.
        """
        election = self._end(partition, epoch, now)
        if election is not None:
            election.result = result
            if result.status in _REFUSALS:
                until = max(now + SOON_S, election.not_before)
                self._refused.setdefault(partition, {})[election.pod] = until

    def unanswered(self, partition: str, epoch: int, now: float, message: str) -> None:
        """The call of `epoch` has failed, as `message` says; what the pod did is unknown."""
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
        """The partition has an active leader: forget its failures. Return the seconds that its election took; None: no
        election was called.
        """
        election = self._elections.get(partition)
        if election is None or election.in_flight:
            return None
        del self._elections[partition]
        return now - election.started

    def forget(self, pods: Iterable[str]) -> None:
        """These pods have restarted: their failures before that say nothing any more."""
        gone = set(pods)
        for partition, election in [*self._elections.items()]:
            if election.pod in gone and not election.in_flight:
                del self._elections[partition]
        for refusals in self._refused.values():
            for pod in gone & refusals.keys():
                del refusals[pod]

    def view(self, now: float) -> Mapping[str, Attempt]:
        """The attempts that a plan must know, by name of the partition."""
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
        """It matters to a plan: it is under way, the next one waits, or its result names what the next one needs."""
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
        """True if calls are under way that began within SOON_S. A series of calls without a break counts only for that
        time, so that work which waits for the calls is done at last.
        """
        return now < self._busy_since + SOON_S and any(each.in_flight for each in self._elections.values())

    def next_due(self, now: float) -> float | None:
        """Seconds until an election that waits may be called, or `are_under_way` ends; None: nothing waits."""
        ends = [each.not_before for each in self._elections.values() if not each.in_flight]
        ends += [self._busy_since + SOON_S for each in self._elections.values() if each.in_flight]
        ends += [until for refusals in self._refused.values() for until in refusals.values()]
        return min((end - now for end in ends if end > now), default=None)


def attempt_of(pod: str, epoch: int, result: CallResult) -> Attempt:
    """The result of the election of `pod` in `epoch`, for a plan."""
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
