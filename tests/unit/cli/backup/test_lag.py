"""How far a backup is behind a cluster, and which clusters are not those that it goes on from."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from muster_cli.backup.cut import Ends, LedLog, OtherHistoryError
from muster_cli.backup.follow import Follower
from muster_cli.backup.follow_metrics import FollowMetrics
from muster_cli.backup.lag import Lag, lag_of
from muster_cli.backup.manifest import Backup, Layout, PartitionCut, encode_manifest
from muster_cli.backup.site import PodsOfCluster
from muster_cli.backup.store import DirectoryStore
from muster_cli.errors import CliError
from muster_cli.main import cli
from muster_cli.progress import quiet
from muster_coordinator.podapi.client import PodClient
from muster_coordinator.podapi.segments import PartitionEntry, SegmentEntry

TAKEN_MS = 1_800_000_000_000
BACKUP = Backup(
    "20270115T080000Z-000001",
    TAKEN_MS,
    "1",
    "c",
    1,
    Layout(0, 2, 500_000, 0),
    (PartitionCut(0, "a", 10, 3, ((1, 0), (3, 8)), ()), PartitionCut(1, "b", 0, 3, (), ())),
)


def ends(*logs: PartitionEntry, cluster_id: str = "c") -> Ends:
    pod = cast("PodClient", None)  # no log is read
    return Ends(TAKEN_MS + 2_500, cluster_id, tuple(LedLog(pod, each) for each in logs))


def log(
    partition: int, end: int, epoch: int = 3, epochs: tuple[tuple[int, int], ...] = ((1, 0), (3, 8)), start: int = 0
) -> PartitionEntry:
    return PartitionEntry(partition, "x", end, epochs, (SegmentEntry(start, 100),), epoch)


def test_records_behind_are_those_after_the_cut_of_each_partition() -> None:
    assert lag_of(BACKUP, ends(log(0, 14), log(1, 3))) == Lag(BACKUP.id, TAKEN_MS, 7, 2.5)
    assert lag_of(BACKUP, ends(log(0, 14), log(7, 50, start=20))).records == 34, "the backup has no partition 7"


def test_backup_that_has_all_records_is_no_second_behind_however_old_it_is() -> None:
    assert lag_of(BACKUP, ends(log(0, 10), log(1, 0))) == Lag(BACKUP.id, TAKEN_MS, 0, 0.0)


def test_later_epochs_behind_the_cut_go_on_from_it() -> None:
    assert lag_of(BACKUP, ends(log(0, 12, 9, ((1, 0), (3, 8), (9, 10))), log(1, 0, 9))).records == 2


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (ends(log(0, 14), cluster_id="d"), "is of Kafka cluster c, and this one is d"),
        (ends(log(0, 14, epoch=2, epochs=((1, 0),))), "is in epoch 2 here, and in 3 in"),
        (ends(log(0, 10), log(1, 0, epoch=2)), "another cluster has gone on from this one"),
        (ends(log(0, 9, epoch=9)), "does not go on where"),
        (ends(log(0, 14, epoch=9, epochs=((1, 0), (9, 9)))), "does not go on where"),
    ],
    ids=["stranger", "left behind", "left behind without a record", "shorter", "parted before the cut"],
)
def test_cluster_that_is_not_what_became_of_the_backup_is_refused(now: Ends, told: str) -> None:
    with pytest.raises(OtherHistoryError, match=told):
        lag_of(BACKUP, now)


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path / "store")
    store.write(BACKUP.name, encode_manifest(BACKUP))
    return store


class Silent:
    """No pod of it answers."""

    tls = None

    async def pods(self) -> dict[str, str]:
        raise CliError("nothing runs")


def test_round_without_an_answer_tells_the_lag_that_is_known_and_leaves_the_store(store: DirectoryStore) -> None:
    def cluster() -> AbstractAsyncContextManager[PodsOfCluster]:
        return nullcontext(Silent())

    metrics = FollowMetrics("c", 10)
    done = Follower(cluster, store, 1, 1, quiet, metrics).round()
    assert done.lag is not None
    assert (done.lag.records, done.backup, done.trouble) == (None, "", "nothing runs")
    assert list(store.files()) == [BACKUP.name]
    assert shown(metrics) == {"interval_seconds": 10, "backup_timestamp_seconds": TAKEN_MS / 1000, "lag_records": 0}


def shown(metrics: FollowMetrics) -> dict[str, float]:
    """The metrics of a follower, without their prefix."""
    families = list(metrics.registry.collect())
    assert {sample.labels["cluster"] for family in families for sample in family.samples} == {"c"}
    return {family.name.removeprefix("muster_follow_"): family.samples[0].value for family in families}


def test_metrics_show_the_newest_backup_and_the_records_that_it_lacked_last() -> None:
    metrics = FollowMetrics("c", 10)
    assert shown(metrics)["backup_timestamp_seconds"] == 0, (
        "a store without a backup is behind from the first moment on"
    )
    metrics.show_newest(BACKUP)
    metrics.show_lag(Lag(BACKUP.id, TAKEN_MS, 7, 2.5))
    metrics.show_lag(Lag(BACKUP.id, TAKEN_MS, None, 100, "nothing runs"))
    assert shown(metrics)["backup_timestamp_seconds"] == TAKEN_MS / 1000
    assert shown(metrics)["lag_records"] == 7


def test_silent_cluster_is_told_with_the_moment_of_the_cut_and_exit_code_1(
    store: DirectoryStore, tmp_path: Path
) -> None:
    arguments = ["backup", "lag", "--store", str(tmp_path / "store"), "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, "does not answer" in done.output, "2027-01-15T08:00:00Z" in done.output) == (1, True, True)
    told = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert (told["backup"], told["records"]) == (BACKUP.id, None)
