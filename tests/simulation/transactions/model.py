"""What transactional producers were told, against what the committed logs of both topics say. Sees all logs at once.

- No producer id is given to two producers, no epoch of one to two instances.
- A coordinator's log goes from state to state as Kafka's does, and no epoch of a producer id goes back in it. It calls
  a transaction complete once each of its partitions has the marker.
- A marker follows a committed decision of its kind, has no older epoch than its partition has seen, and is from no
  coordinator that another one has followed.
- What a transaction wrote gets one end, the same in all partitions: committed only if its producer asked for that, and
  never another one than was answered. Nothing is written for a transaction after its end, nor before an older one.
- What a fetch shows is of a committed transaction, and goes never back; a stable one shows all that was answered as
  committed before it was asked for.
- What an instance asks for after another one was initialised is not done.
- Every request is answered, unless its process ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from tests.simulation.injected import Injected
from tests.simulation.machine import Decoded
from tests.simulation.world import Violation, World

from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.records.structs import OffsetCommitRecord
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionRecord, TransactionStatus

__all__ = ["GroupStart", "Model", "Transaction", "TransactionalId"]

FIRST_PRODUCER_ID = 1 << 40
"""What coordinators hand out. Below it are those of the clients that write markers by themselves."""

_E, _O, _PC, _PA, _CC, _CA = TransactionStatus
_FOLLOWS: dict[TransactionStatus, tuple[TransactionStatus, ...]] = {
    _E: (_E, _O, _PA),
    _O: (_O, _PC, _PA),
    _PC: (_CC,),
    _PA: (_CA,),
    _CC: (_E, _O, _PA),
    _CA: (_E, _O, _PA),
}
"""Source: TransactionState.VALID_PREVIOUS_STATES."""
_PREPARED = {_PC: True, _PA: False}
_COMPLETE = {_CC: True, _CA: False}


@dataclass(eq=False)
class Transaction:
    """`number`: what it writes to each of its groups. `begun`: which one of its id it is in the coordinator's log, once
    that is known. `asked`, `answered`: whether its producer asked for a commit or an abort, and was told that."""

    number: int
    owner: Hashable
    groups: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    begun: int | None = None
    asked: bool | None = None
    answered: bool | None = None
    ends: dict[str, bool] = field(default_factory=dict)  # by group, as the markers say


class TransactionalId:
    """`newest`: the highest epoch that an instance has heard to be initialised with, and its number."""

    def __init__(self, name: str, groups: Sequence[str]) -> None:
        self.name = name
        self.groups = groups
        self.transactions: dict[int, Transaction] = {}
        self.newest = (-1, -1)
        self.value: TransactionLogValue | None = None
        self.begun = 0
        self.since_ms = -1  # of the transaction that is under way; -1: none is
        self.decisions: dict[int, bool] = {}
        self.marked: Counter[tuple[int, bool]] = Counter()  # partitions, when the last decision was made

    def begin(self, owner: Hashable) -> Transaction:
        number = len(self.transactions) + 1
        found = self.transactions[number] = Transaction(number, owner)
        return found


@dataclass(frozen=True)
class GroupStart:
    """Of a fetch: what had been read by then, and what had been answered as committed."""

    read: int
    committed: int


class _Group:
    def __init__(self, of: TransactionalId) -> None:
        self.of = of
        self.written = 0
        self.read = 0
        self.committed = 0


class Model:
    """`committed`, `aborted`: decisions in the committed logs."""

    def __init__(self, world: World) -> None:
        self.commits = 0
        self.aborts = 0
        self.ids: dict[str, TransactionalId] = {}
        self._world = world
        self._groups: dict[str, _Group] = {}
        self._owners: dict[int, Hashable] = {}
        self._issued: dict[tuple[int, int], Hashable] = {}
        self._decided: set[tuple[int, int, bool]] = set()
        self._markers: Counter[tuple[int, int, int, bool]] = Counter()  # partition, producer, epoch, kind
        self._pending: dict[tuple[int, int], dict[str, int]] = {}  # partition, producer -> group -> transaction
        self._producer_epochs: dict[tuple[int, int], int] = {}
        self._coordinator_epochs: dict[tuple[int, int], int] = {}

    def new_id(self, name: str, groups: Sequence[str]) -> TransactionalId:
        found = self.ids[name] = TransactionalId(name, groups)
        self._groups |= {group: _Group(found) for group in groups}
        return found

    def knows(self, group: str) -> bool:
        return group in self._groups

    # -- logs ---------------------------------------------------------------------------------------------------------

    def committed(self, number: int, batch: Decoded) -> None:
        """The next batch of the committed log of partition `number`."""
        if number in TRANSACTIONS.numbers:
            for change, _, _ in batch.changes:
                if isinstance(change, TransactionRecord) and change.transactional_id in self.ids:
                    assert change.value is not None, "no id expires in a run"
                    self._goes_on(self.ids[change.transactional_id], change.value)
        elif batch.producer_id >= FIRST_PRODUCER_ID:
            producer = batch.producer_id, batch.producer_epoch
            if batch.marker is not None:
                self._ends(number, producer, batch.marker.committed, batch.marker.coordinator_epoch)
            for change, _, _ in batch.changes:
                assert isinstance(change, OffsetCommitRecord)
                assert change.value is not None
                self._writes(number, producer, change.group_id, change.value.offset)

    def _goes_on(self, of: TransactionalId, value: TransactionLogValue) -> None:
        before, of.value = of.value, value
        status = value.status
        was = before.status if before is not None else _E
        if status not in _FOLLOWS[was]:
            raise Violation(f"{of.name} goes from {was.name} to {status.name}")
        same = before is not None and value.producer_id == before.producer_id
        if before is not None and same and value.producer_epoch < before.producer_epoch:
            raise Violation(f"{of.name} goes back from {before} to {value}")
        if status is _O and was is not _O:
            of.begun += 1
            of.since_ms = self._world.now_ms
        if status in _PREPARED:
            self._decides(of, value, was)
        if status in _COMPLETE:
            assert before is not None
            self._completes(of, before)
            of.since_ms = -1

    def _decides(self, of: TransactionalId, value: TransactionLogValue, was: TransactionStatus) -> None:
        commits = _PREPARED[value.status]
        if was is _O:
            of.decisions[of.begun] = commits
            self.commits += commits
            self.aborts += not commits
            late = value.last_update_ms - value.start_ms >= value.timeout_ms
            self._world.injected[Injected.TRANSACTION_TIMED_OUT] += not commits and late
        else:
            of.since_ms = self._world.now_ms
        self._decided.add((value.producer_id, value.producer_epoch, commits))
        of.marked = Counter({(number, commits): self._marks(number, value) for number in _numbers(value)})

    def _completes(self, of: TransactionalId, decided: TransactionLogValue) -> None:
        commits = _PREPARED[decided.status]
        for number in _numbers(decided):
            if self._marks(number, decided) <= of.marked[number, commits]:
                raise Violation(f"{of.name} is complete, and partition {number} has no marker of {decided}")

    def _marks(self, number: int, value: TransactionLogValue) -> int:
        return self._markers[number, value.producer_id, value.producer_epoch, _PREPARED[value.status]]

    def _check_epoch(self, number: int, producer: tuple[int, int], what: str) -> None:
        key = number, producer[0]
        seen = self._producer_epochs.get(key, -1)
        if producer[1] < seen:
            raise Violation(f"partition {number} takes {what} of {producer}, and knows epoch {seen}")
        self._producer_epochs[key] = producer[1]

    def _writes(self, number: int, producer: tuple[int, int], name: str, written: int) -> None:
        """Offsets of an open transaction."""
        group = self._groups[name]
        transaction = group.of.transactions[written]
        self._check_epoch(number, producer, f"offsets of {name}")
        if name not in transaction.groups:
            raise Violation(f"{name} gets {written}, which nobody wrote")
        if name in transaction.ends:
            raise Violation(f"{name} gets {written} after the end of that transaction")
        if written < group.written:
            raise Violation(f"{name} gets {written} after {group.written}")
        group.written = written
        pending = self._pending.setdefault((number, producer[0]), {})
        if pending.setdefault(name, written) != written:
            raise Violation(f"{name} gets {written} while transaction {pending[name]} has no end")

    def _ends(self, number: int, producer: tuple[int, int], commits: bool, coordinator_epoch: int) -> None:
        """A marker."""
        self._check_epoch(number, producer, "a marker")
        key = number, producer[0]
        seen = self._coordinator_epochs.get(key, -1)
        if coordinator_epoch < seen:
            raise Violation(f"partition {number} takes a marker of coordinator {coordinator_epoch}, and knows {seen}")
        self._coordinator_epochs[key] = coordinator_epoch
        if (*producer, commits) not in self._decided:
            raise Violation(f"partition {number} has a marker of {producer}, {commits=}, that nobody has decided")
        self._markers[(number, *producer, commits)] += 1
        for name, written in self._pending.pop(key, {}).items():
            self._end(name, self._groups[name].of.transactions[written], commits)

    def _end(self, name: str, transaction: Transaction, commits: bool) -> None:
        what = f"transaction {transaction.number} of {name}"
        if commits and transaction.asked is not True:
            raise Violation(f"{what} is committed, its producer asked for {transaction.asked}")
        transaction.ends[name] = commits
        if len(set(transaction.ends.values())) > 1:
            raise Violation(f"{what} has several ends: {transaction.ends}")
        self._check_answered(what, transaction)

    def _check_answered(self, what: str, transaction: Transaction) -> None:
        for end in transaction.ends.values():
            if transaction.answered not in (None, end):
                raise Violation(f"{what} was answered as committed={transaction.answered}, and is {end}")

    # -- producers ----------------------------------------------------------------------------------------------------

    def issues(self, owner: Hashable, instance: Hashable, producer: tuple[int, int]) -> None:
        """Whoever has the id `owner` is told to go on with this producer id and epoch; `instance` of it."""
        if self._owners.setdefault(producer[0], owner) != owner:
            raise Violation(f"producer id {producer[0]} is {self._owners[producer[0]]}'s, and given to {owner}")
        if self._issued.setdefault(producer, instance) != instance:
            raise Violation(f"{producer} was given to {self._issued[producer]}, and now to {instance}")

    def does(self, of: TransactionalId, transaction: Transaction) -> None:
        """A pod answers a request of this transaction: it has begun."""
        if transaction.begun is None:
            transaction.begun = of.begun

    def ends(self, of: TransactionalId, transaction: Transaction, commits: bool) -> None:
        """A pod answers EndTxn."""
        if transaction.begun is None:
            return  # nothing was added, as far as the producer knows
        decided = of.decisions.get(transaction.begun)
        if decided != commits:
            raise Violation(
                f"transaction {transaction.number} of {of.name} is answered as committed={commits}, decided: {decided}"
            )
        transaction.answered = commits
        self._check_answered(f"transaction {transaction.number} of {of.name}", transaction)

    def committed_for(self, transaction: Transaction) -> None:
        """The producer has heard that it is."""
        for name in transaction.acknowledged:
            group = self._groups[name]
            group.committed = max(group.committed, transaction.number)

    # -- groups -------------------------------------------------------------------------------------------------------

    def start(self, name: str) -> GroupStart:
        group = self._groups[name]
        return GroupStart(group.read, group.committed)

    def reads(self, name: str, number: int, start: GroupStart, *, stable: bool) -> None:
        """A fetch shows what transaction `number` wrote; 0: nothing."""
        group = self._groups[name]
        least = max(start.read, start.committed) if stable else start.read
        if number < least:
            raise Violation(f"{name} shows {number}, {stable=}, {start}")
        if number == 0:
            return
        transaction = group.of.transactions[number]
        if transaction.asked is not True or transaction.answered is False or not transaction.ends.get(name, True):
            raise Violation(f"{name} shows {number}, which is not committed: {transaction}")
        group.read = max(group.read, number)

    # -- liveness -----------------------------------------------------------------------------------------------------

    def open_since(self, before_ms: int) -> str:
        """A transaction that began before then, and is not complete; "" if there is none."""
        for of in self.ids.values():
            if 0 <= of.since_ms < before_ms:
                return f"a transaction of {of.name} is open since {of.since_ms}: {of.value}"
        return ""


def _numbers(value: TransactionLogValue) -> list[int]:
    """Of its partitions, which are those of groups."""
    return [OFFSETS.first + index for _, indexes in value.partitions for index in indexes]
