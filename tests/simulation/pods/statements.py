"""What a replica says of itself is true at the moment in which it says it, and who counts it has been told so.

- A seal names the leader and the epoch of the durable promise.
- An ack is for the promised leader, is durable, and names an end up to which the log equals the leader's.
- A replica that rebuilds says so with both, and with its present incarnation.
- A replica that has rebuilt its log has again all that it held when it lost data and that was committed since, and, if
  the epoch is still the same, all that it had acked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world import Violation

from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Ack, Message, Sealed

if TYPE_CHECKING:
    from tests.simulation.pods.replica import HostedReplica

__all__ = ["Statements", "check"]


class Statements:
    """Of all replicas of a partition, by log id: also of logs that are gone."""

    def __init__(self) -> None:
        self._sealed: set[tuple[str, int]] = set()
        self._acked: dict[str, dict[tuple[int, int], int]] = {}  # (epoch, incarnation) -> end
        self._heard: dict[tuple[int, str], int] = {}  # (epoch of the leader that heard it, log id) -> incarnation

    def seals(self, message: Sealed) -> None:
        self._sealed.add((message.sender, message.epoch))

    def has_sealed(self, log_id: str, epoch: int) -> bool:
        """With a log that counted then."""
        return (log_id, epoch) in self._sealed

    def acks(self, ack: Ack) -> None:
        ends = self._acked.setdefault(ack.sender, {})
        key = ack.epoch, ack.incarnation
        ends[key] = max(ack.end, ends.get(key, 0))

    def heard(self, log_id: str, epoch: int, incarnation: int) -> None:
        """The leader of `epoch` has got an answer of this incarnation."""
        key = epoch, log_id
        self._heard[key] = max(incarnation, self._heard.get(key, 0))

    def has_acked(self, log_id: str, epoch: int, offset: int) -> bool:
        """To the leader of `epoch`, which knows of no loss since."""
        told = self._heard.get((epoch, log_id), 0)
        return any(
            of_epoch == epoch and incarnation >= told and end >= offset
            for (of_epoch, incarnation), end in self._acked.get(log_id, {}).items()
        )


def check(replica: HostedReplica, message: Message) -> None:
    """`message` leaves `replica`. Raises Violation."""
    host = replica.host
    if host is None or host.core is None:
        return
    statements, promise = replica.partition.statements, host.replica.promise
    if isinstance(message, Sealed):
        if (promise.epoch, promise.leader) != (message.epoch, message.to) and promise.epoch <= message.epoch:
            raise Violation(f"{replica.name} seals {message.epoch} for {message.to}, its promise is {promise}")
        _check_loss(replica, message, promise)
        if not message.rebuilding:
            statements.seals(message)
    elif isinstance(message, Ack):
        if (promise.epoch, promise.leader) != (message.epoch, message.to):
            raise Violation(f"{replica.name} acks {message.epoch} to {message.to}, its promise is {promise}")
        _check_loss(replica, message, promise)
        if not message.sync:
            _check_ack(replica, message)
            if not message.rebuilding:
                statements.acks(message)


def _check_loss(replica: HostedReplica, message: Ack | Sealed, promise: Promise) -> None:
    if (promise.rebuilding, promise.incarnation) != (message.rebuilding, message.incarnation):
        raise Violation(f"{replica.name} sends {message}, and does not say what it lost: {promise}")


def _check_ack(replica: HostedReplica, ack: Ack) -> None:
    host = replica.host
    assert host is not None
    log = host.open_log
    durable_to = replica.durable_to(log) if log is not None else -1
    if durable_to < ack.end:
        raise Violation(f"{replica.name} acks {ack.end}, durable is {durable_to}")
    leader = replica.partition.replica_of(ack.to)
    core = leader.core if leader is not None else None
    if core is None or core.leading_epoch != ack.epoch:
        return
    own, other = replica.running.log, core.log
    if ack.end > other.end or own.epoch_before(ack.end) != other.epoch_before(ack.end):
        raise Violation(
            f"{replica.name} acks {ack.end} of epoch {own.epoch_before(ack.end)} to the leader of {ack.epoch}, whose"
            f" log ends at {other.end} and has epoch {other.epoch_before(ack.end)} there"
        )
