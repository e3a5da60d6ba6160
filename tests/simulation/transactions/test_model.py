"""Each property that is checked of transactions has a negative here, or is caught by a planted fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.machine import Decoded
from tests.simulation.options import Options
from tests.simulation.transactions.model import FIRST_PRODUCER_ID, Model, Transaction
from tests.simulation.world import Violation, World

from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.records.control import EndTxnMarker
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionRecord, TransactionStatus

ID = FIRST_PRODUCER_ID
PARTITIONS = ((OFFSETS.name, (0, 1)),)


class Story:
    """One transactional id with a group in each of two partitions, and what the logs say of it."""

    def __init__(self) -> None:
        self.model = Model(World(Options(0)))
        self.id = self.model.new_id("x", ["a", "b"])

    def begins(self, epoch: int = 0) -> Transaction:
        """A transaction that writes to both groups."""
        transaction = self.id.begin("instance")
        transaction.groups |= {"a", "b"}
        self.is_(TransactionStatus.ONGOING, epoch)
        self.model.does(self.id, transaction)
        for number, group in enumerate(("a", "b")):
            self.writes(number, group, transaction.number, epoch)
            transaction.acknowledged.add(group)
        return transaction

    def is_(self, status: TransactionStatus, epoch: int = 0) -> None:
        value = TransactionLogValue(ID, epoch, 100, status, PARTITIONS, 0, 0)
        self.model.committed(TRANSACTIONS.first, Decoded([(TransactionRecord("x", value), 0, 0)], -1, -1, None, None))

    def writes(self, number: int, group: str, written: int, epoch: int = 0) -> None:
        record = OffsetCommitRecord(group, "t", 0, OffsetCommitValue(written, -1, "", 0, -1))
        self.model.committed(number, Decoded([(record, 0, 0)], ID, epoch, None, None))

    def is_marked(self, number: int, *, commits: bool = True, epoch: int = 0, coordinator: int = 1) -> None:
        self.model.committed(number, Decoded([], ID, epoch, EndTxnMarker(commits, coordinator), None))

    def commits(self) -> Transaction:
        transaction = self.begins()
        transaction.asked = True
        self.is_(TransactionStatus.PREPARE_COMMIT)
        self.model.ends(self.id, transaction, True)
        self.is_marked(0)
        self.is_marked(1)
        self.is_(TransactionStatus.COMPLETE_COMMIT)
        self.model.committed_for(transaction)
        return transaction


def test_transactions_as_they_should_be() -> None:
    story = Story()
    start = story.model.start("a")
    first = story.commits()
    story.model.reads("a", first.number, start, stable=True)
    second = story.begins()
    second.asked = False
    story.is_(TransactionStatus.PREPARE_ABORT)
    story.model.ends(story.id, second, False)
    story.is_marked(0, commits=False)
    story.is_marked(1, commits=False)
    story.is_(TransactionStatus.COMPLETE_ABORT)
    story.model.reads("a", first.number, story.model.start("a"), stable=True)
    assert (story.model.commits, story.model.aborts, story.model.open_since(1)) == (1, 1, "")


def _two_owners(story: Story) -> None:
    story.model.issues("x", "instance", (ID, 0))
    story.model.issues("y", "another", (ID, 1))


def _two_instances(story: Story) -> None:
    story.model.issues("x", "instance", (ID, 0))
    story.model.issues("x", "another", (ID, 0))


def _wrong_state(story: Story) -> None:
    story.commits()
    story.is_(TransactionStatus.PREPARE_COMMIT)


def _epoch_back(story: Story) -> None:
    story.is_(TransactionStatus.EMPTY, 3)
    story.is_(TransactionStatus.EMPTY, 2)


def _complete_too_early(story: Story) -> None:
    story.begins().asked = True
    story.is_(TransactionStatus.PREPARE_COMMIT)
    story.is_marked(0)
    story.is_(TransactionStatus.COMPLETE_COMMIT)


def _nobody_decided(story: Story) -> None:
    story.begins().asked = True
    story.is_marked(0)


def _old_epoch(story: Story) -> None:
    story.begins(epoch=2)
    story.is_marked(0, epoch=1)


def _old_coordinator(story: Story) -> None:
    story.commits()
    story.is_marked(0, coordinator=0)


def _asked_for_abort(story: Story) -> None:
    story.begins().asked = False
    story.is_(TransactionStatus.PREPARE_COMMIT)
    story.is_marked(0)


def _two_ends(story: Story) -> None:
    story.begins().asked = True
    story.is_(TransactionStatus.PREPARE_COMMIT)
    story.is_marked(0)
    story.model._decided.add((ID, 0, False))
    story.is_marked(1, commits=False)


def _answered_too_early(story: Story) -> None:
    transaction = story.begins()
    transaction.asked = True
    story.model.ends(story.id, transaction, True)


def _answered_otherwise(story: Story) -> None:
    transaction = story.begins()
    transaction.asked = True
    story.is_(TransactionStatus.PREPARE_ABORT)
    story.is_marked(0, commits=False)
    story.id.decisions[1] = True
    story.model.ends(story.id, transaction, True)


def _late_write(story: Story) -> None:
    story.writes(0, "a", story.commits().number)


def _older_write(story: Story) -> None:
    first, second = story.id.begin("instance"), story.id.begin("instance")
    first.groups.add("a")
    second.groups.add("a")
    story.writes(0, "a", second.number)
    story.writes(0, "a", first.number)


def _write_into_an_open_one(story: Story) -> None:
    story.begins()
    story.begins()


def _dirty_read(story: Story) -> None:
    story.model.reads("a", story.begins().number, story.model.start("a"), stable=False)


def _stale_read(story: Story) -> None:
    story.commits()
    story.model.reads("a", 0, story.model.start("a"), stable=True)


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (_two_owners, "is x's, and given to y"),
        (_two_instances, "was given to instance, and now to another"),
        (_wrong_state, "goes from COMPLETE_COMMIT to PREPARE_COMMIT"),
        (_epoch_back, "goes back from"),
        (_complete_too_early, "is complete, and partition 1 has no marker"),
        (_nobody_decided, "that nobody has decided"),
        (_old_epoch, "takes a marker of .*, and knows epoch 2"),
        (_old_coordinator, "takes a marker of coordinator 0, and knows 1"),
        (_asked_for_abort, "is committed, its producer asked for False"),
        (_two_ends, "has several ends"),
        (_answered_too_early, "is answered as committed=True, decided: None"),
        (_answered_otherwise, "was answered as committed=True, and is False"),
        (_late_write, "after the end of that transaction"),
        (_older_write, "gets 1 after 2"),
        (_write_into_an_open_one, "while transaction 1 has no end"),
        (_dirty_read, "which is not committed"),
        (_stale_read, "shows 0, stable=True"),
    ],
)
def test_transactions_as_they_must_not_be(happens: Callable[[Story], None], reason: str) -> None:
    with pytest.raises(Violation, match=reason):
        happens(Story())


def test_transaction_that_stays_open_is_named() -> None:
    story = Story()
    story.begins()
    assert "of x is open since 0" in story.model.open_since(1)
