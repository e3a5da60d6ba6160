"""The commit point needs an own-epoch batch on a majority of every set."""

import pytest

from muster_coordinator.replication.commit_point import CommitPoint


def test_single_replica_commits_what_it_holds_durably() -> None:
    commit = CommitPoint("a", ("a",), (), epoch_start_offset=10)
    assert commit.acknowledge("a", 11)
    assert commit.offset == 11


def test_records_of_older_epochs_alone_commit_nothing() -> None:
    commit = CommitPoint("a", ("a", "b", "c"), (), epoch_start_offset=10)
    assert not commit.acknowledge("a", 10)
    assert not commit.acknowledge("b", 10)
    assert commit.offset == -1
    assert not commit.acknowledge("a", 11)
    assert commit.acknowledge("b", 11)
    assert commit.offset == 11


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (3, 2), (5, 3)])
def test_a_majority_and_not_fewer_commits(size: int, needed: int) -> None:
    replicas = tuple("abcde"[:size])
    commit = CommitPoint("a", replicas, (), epoch_start_offset=0)
    moved = [commit.acknowledge(r, 5) for r in replicas[:needed]]
    assert moved == [False] * (needed - 1) + [True]


def test_both_sets_must_hold_a_record_while_the_set_changes() -> None:
    commit = CommitPoint("a", ("a", "d", "e"), ("a", "b", "c"), epoch_start_offset=0)
    commit.acknowledge("a", 4)
    commit.acknowledge("b", 4)
    assert commit.offset == -1, "a majority of the previous set only"
    assert commit.acknowledge("d", 3)
    assert commit.offset == 3


def test_learners_and_late_acknowledgements_move_nothing() -> None:
    commit = CommitPoint("a", ("a",), (), epoch_start_offset=0)
    assert commit.acknowledge("a", 5)
    assert not commit.acknowledge("a", 3)
    assert not commit.acknowledge("learner", 9)
    assert commit.offset == 5


def test_leader_outside_every_set_is_refused() -> None:
    with pytest.raises(ValueError, match="in no set"):
        CommitPoint("x", ("a",), (), epoch_start_offset=0)


def test_replica_of_the_set_before_counts_for_nothing_once_the_change_is_final() -> None:
    commit = CommitPoint("a", ("a",), ("b",), epoch_start_offset=0)
    commit.acknowledge("a", 1)
    commit.acknowledge("b", 1)
    commit.finish_change(1, ("a",))
    assert commit.acknowledge("a", 2)
    assert not commit.acknowledge("b", 3)
    assert commit.offset == 2
