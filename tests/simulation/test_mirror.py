"""Each check of a real pod's replica, of transactions, descriptions and fences has a negative here."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.simulation.cluster import Cluster, Partition
from tests.simulation.history import FenceHistory, History
from tests.simulation.options import Options
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.world import Violation, World
from tests.simulation.written import commit_record, log_of

from muster_coordinator.records.batch import iter_batches
from muster_coordinator.records.offset_commit import encode_offset_commit_key
from muster_coordinator.replication.effects import Promise
from muster_coordinator.replication.messages import Ack, Sealed
from muster_coordinator.state_machine import Record


@pytest.fixture
def partition() -> Partition:
    world = World(Options(0))
    cluster = Cluster(world)
    world.run_until(200)  # the logs are open
    return cluster.partitions[0]


def _replica(partition: Partition) -> HostedReplica:
    replica = partition.replicas["pod-0"]
    assert isinstance(replica, HostedReplica)
    return replica


# -- one replica ------------------------------------------------------------------------------------------------------


def _deletion(partition: int) -> Record:
    return encode_offset_commit_key("g", "t", partition), None, None


def _acked(replica: HostedReplica, end: int) -> None:
    replica.storage.promise = Promise(3, "a")
    replica.acks(Ack(replica.storage.log_id, "a", 3, end, 1, 0, False))


@pytest.mark.parametrize("epoch", [3, 4])
def test_cut_below_what_was_acked_to_the_promised_leader(partition: Partition, epoch: int) -> None:
    replica = _replica(partition)
    _acked(replica, 5)
    replica.storage.promise = Promise(epoch, "b")
    if epoch > 3:
        replica._must_keep(4, "cuts its log")
        return
    with pytest.raises(Violation, match="cuts its log at 4, acked in this epoch was 5"):
        replica._must_keep(4, "cuts its log")


def test_copy_that_lacks_what_was_reported_as_committed(partition: Partition) -> None:
    replica = _replica(partition)
    replica._committed = 7
    with pytest.raises(Violation, match="it reported 7 as committed"):
        replica._must_keep(6, "swaps its log for a copy")


def test_start_with_less_than_was_acked(partition: Partition) -> None:
    replica = _replica(partition)
    _acked(replica, 5)
    with pytest.raises(Violation, match="ends at 0 after a start, it held 5"):
        replica._recovered(is_whole=True)


def test_answer_of_a_replica_that_hides_its_loss(partition: Partition) -> None:
    replica = _replica(partition)
    _acked(replica, 5)
    replica.storage.power_lost = True
    replica._recovered(is_whole=True)
    sealed = Sealed(replica.storage.log_id, "a", 4, 0, (), None, -1, 0, False, 0)
    with pytest.raises(Violation, match="does not say that it lost"):
        replica.sends(sealed)
    with pytest.raises(Violation, match="seals 4 for a, its promise is"):
        replica.sends(msgspec.structs.replace(sealed, rebuilding=True))


def test_log_without_a_tombstone_above_its_horizon(partition: Partition) -> None:
    log = log_of((0, 1, commit_record(0)), (1, 1, _deletion(0)))
    partition.checker._compare(log, "a log", 0, log.end)
    replica = _replica(partition)
    replica.log = log_of((0, 1, commit_record(0)))
    replica.log.append(2, (), [(1, 0)], 0)
    with pytest.raises(Violation, match=r"lacks the tombstone of .* at 1, its horizon is 0"):
        partition.checker.check_horizon(replica)
    replica.log.horizon = 2
    partition.checker.check_horizon(replica)


def test_log_that_is_cleaned_of_what_the_archive_has_not(partition: Partition) -> None:
    replica = _replica(partition)
    before = log_of((0, 1, commit_record(0)), (1, 1, commit_record(1)))
    archived = {batch.base_offset: batch for one in before.batches for batch in iter_batches(one.data)}
    replica.log = log_of((1, 1, commit_record(1)))
    replica._check_cleaned(before, archived)
    del archived[0]
    with pytest.raises(Violation, match="which the archive has not"):
        replica._check_cleaned(before, archived)
    replica.log = before
    replica._check_cleaned(before, {})


def test_flipped_bit_is_damage_as_long_as_it_is_in_the_log(partition: Partition) -> None:
    """Another loss may be noticed before it."""
    replica = _replica(partition)
    replica.storage.lost = "flipped bit"
    replica.storage.keep_promise(Promise(3, "a", 1, rebuilding=True))
    replica.storage.keep_promise(Promise(3, "a", 1))
    assert replica.storage.is_damaged
    assert replica.host is not None
    assert replica.host.open_log is not None
    replica._opened(replica.host.open_log)
    assert not replica.storage.is_damaged


def test_archive_of_what_was_not_committed(partition: Partition) -> None:
    [batch] = iter_batches(log_of((0, 1, commit_record(1))).batches[0].data)
    with pytest.raises(Violation, match="archives"):
        partition.checker.archived("a log", [batch])


# -- clients ----------------------------------------------------------------------------------------------------------


def _aborted(history: History) -> None:
    history.prepares(1)
    history.ends(commits=False)
    history.ended(commits=False)
    history.read(1, history.start())


def _not_yet_committed(history: History) -> None:
    history.prepares(1)
    history.read(1, history.start())


def _described_and_deleted(history: History) -> None:
    history.tries_to_leave(1)
    history.acknowledged(1, history.start())
    history.described(True, history.start())


def _not_described(history: History) -> None:
    history.tries(1)
    history.acknowledged(1, history.start())
    history.described(False, history.start())


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (_aborted, "was not committed"),
        (_not_yet_committed, "was not committed"),
        (_described_and_deleted, "is described"),
        (_not_described, "is not described"),
    ],
)
def test_history_that_is_not_linearizable(happens: Callable[[History], None], reason: str) -> None:
    with pytest.raises(Violation, match=reason):
        happens(History("g"))


def test_answer_of_a_partition_that_is_closed() -> None:
    fences = FenceHistory("fence 0")
    fences.tries(2)
    assert fences.closed_from == -1, "it is not known to be closed"
    fences.acknowledged(2, fences.start())
    with pytest.raises(Violation, match="although it is closed by step 2"):
        fences.answers("a response", fences.closed_from)
    closed_from = fences.closed_from
    fences.tries(3)
    fences.answers("a response", closed_from)
