"""Restores with other numbers of partitions, of backups under commits and transactions, as clients find them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_backup import PLAIN, TRANSACTIONS, check, create
from tests.support.local_cluster import LocalCluster, muster, wait_until
from tests.support.transaction_load import Load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

Numbers = tuple[int, int]
"""Partitions of groups and of transactions."""

UP_AND_DOWN = pytest.mark.parametrize(("before", "after"), [((3, 2), (5, 3)), ((6, 3), (2, 1))], ids=["up", "down"])
CUTS = 3


def options(numbers: Numbers) -> tuple[str, ...]:
    return "--partitions", str(numbers[0]), "--transaction-partitions", str(numbers[1])


def serving(before: Numbers, after: Numbers) -> list[int]:
    """The numbers of the partitions, above those that there were."""
    groups, transactions = (range(old, old + new) for old, new in zip(before, after, strict=True))
    return [*groups, *(500_000 + index for index in transactions)]


@contextmanager
def running(data: Path, numbers: Numbers) -> Iterator[tuple[LocalCluster, Load]]:
    """A cluster of three pods with clients."""
    with LocalCluster(data, "--pods", "3", "--topic", "orders:3", *options(numbers)) as cluster:
        load = Load(cluster.wait_ready(), TRANSACTIONS, PLAIN)
        try:
            wait_until(lambda: len(load.known()) == TRANSACTIONS + PLAIN and load.done > 100, "clients commit")
            yield cluster, load
        finally:
            load.stop()
        assert load.failures == []


def go_on(load: Load) -> None:
    reached = load.done
    wait_until(lambda: load.done > reached + 100, "clients go on")


def restored(store: str, target: Path, numbers: Numbers, *more: str) -> dict[str, Any]:
    done = muster("restore", "--store", store, "--data-dir", str(target), "--json", *options(numbers), *more)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


@UP_AND_DOWN
def test_clients_find_what_each_cut_has_and_go_on(tmp_path: Path, before: Numbers, after: Numbers) -> None:
    store, known, opened = str(tmp_path / "store"), [], 0
    with running(tmp_path / "data", before) as (cluster, load):
        for _ in range(CUTS):
            at_least = load.known()
            backup_id = create(cluster, store)
            known.append((backup_id, at_least, load.known()))
            go_on(load)
    for number, (backup_id, at_least, at_most) in enumerate(known):
        target = tmp_path / f"restored-{number}"
        made = restored(store, target, after, "--backup", backup_id)
        assert made["transactionalIds"] == TRANSACTIONS
        opened += len(made["open_transactions"])
        with LocalCluster(target, "--topic", "orders:3") as again:
            bootstrap = again.wait_ready()
            check(bootstrap, at_least, at_most, load.aborted)
            led = sorted(line["partition"] for line in again.status()["partitions"] if line["state"] == "Led")
            assert led == serving(before, after)
            goes_on = Load(bootstrap, TRANSACTIONS, PLAIN, start=1_000_000)
            wait_until(lambda: goes_on.done > 30 or bool(goes_on.failures), "clients go on")  # noqa: B023
            at_least = goes_on.known()
            second = create(again, str(tmp_path / f"second-{number}"))
            at_most = goes_on.known()
            goes_on.stop()
            assert goes_on.failures == []
    assert opened > 0
    last = tmp_path / "last"  # back to the numbers that there were, from the backup of a restored cluster
    restored(str(tmp_path / f"second-{CUTS - 1}"), last, before, "--backup", second)
    with LocalCluster(last, "--topic", "orders:3") as again:
        check(again.wait_ready(), at_least, at_most, goes_on.aborted)


@UP_AND_DOWN
def test_clients_find_what_they_had_committed_at_a_moment(tmp_path: Path, before: Numbers, after: Numbers) -> None:
    store = str(tmp_path / "store")
    with running(tmp_path / "data", before) as (cluster, load):
        create(cluster, store)
        go_on(load)
        at_least, at = load.known(), datetime.now(UTC)
        # A commit in the rest of this millisecond counts to the moment: records carry no finer time.
        while datetime.now(UTC) < at + timedelta(milliseconds=1):
            pass
        at_most = load.known()
        go_on(load)
        create(cluster, store)
    made = restored(store, tmp_path / "then", after, "--at", at.isoformat())
    assert made["after"] > 0
    with LocalCluster(tmp_path / "then", "--topic", "orders:3") as then:
        check(then.wait_ready(), at_least, at_most, load.aborted)


@UP_AND_DOWN
def test_pods_come_up_on_volumes_that_were_resharded_each_by_itself(
    tmp_path: Path, before: Numbers, after: Numbers
) -> None:
    """It starts as on Kubernetes: no record says who leads, so the operator takes sets, epochs and layout from the
    volumes."""
    store, data = str(tmp_path / "store"), tmp_path / "again"
    with running(tmp_path / "data", before) as (cluster, load):
        at_least = load.known()
        backup_id = create(cluster, store)
        at_most = load.known()
    for pod in range(3):
        volume = ("--volume", str(data / "pods" / f"muster-{pod}"), "--pod", str(pod), "--pods", "3")
        done = muster("restore", "--store", store, "--backup", backup_id, *volume, *options(after))
        assert done.returncode == 0, done.stderr
    with LocalCluster(data, "--pods", "3", "--topic", "orders:3", *options(after)) as again:
        check(again.wait_ready(), at_least, at_most, load.aborted)
        led = sorted(line["partition"] for line in again.status()["partitions"] if line["state"] == "Led")
        assert led == serving(before, after)
