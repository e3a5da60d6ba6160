"""A second site takes over from pods that are alive (all, or all but one), dead, or stopped and continued, by claims in
a real object store.

`MUSTER_TAKEOVER_ROUNDS=20` does each of them so often, and all alive one time less.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from tests.support.local_cluster import LocalCluster, muster, wait_until
from tests.support.s3_server import WHY_NONE, compiled, s3_server
from tests.support.site_clients import SiteClients, commits_in_logs
from tests.support.transaction_load import committed

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(compiled() is None, reason=WHY_NONE),
]

ROUNDS = int(os.environ.get("MUSTER_TAKEOVER_ROUNDS", "1"))
LEASE_S = 3
GROUPS = 4
FIRST_AT_WEST = 1_000_000
SHAPE = ("--partitions", "4", "--transaction-partitions", "2", "--topic", "orders:1")
STORE = "s3://backups/sites"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield STORE


def command(*arguments: str) -> dict[str, Any]:
    done = muster("backup", *arguments, "--store", STORE, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of_site(data: Path, name: str, pods: int) -> LocalCluster:
    return LocalCluster(data, *SHAPE, "--pods", str(pods), "--config", f"muster.site={name}@{STORE}")


def send(cluster: LocalCluster, number: signal.Signals, *, one: bool = False) -> None:
    """Stop or continue all its processes, or the last pod, of which clients do not ask first who coordinates."""
    record = cluster.run_record()
    pods = [each["pid"] for each in record["pods"]]
    for pid in pods[-1:] if one else [*pods, record["supervisor"]]:
        os.kill(pid, number)


@pytest.mark.parametrize("kind", ["alive but for a pod", "dead", "cut off"] * ROUNDS + ["alive"] * (ROUNDS - 1))
def test_take_over_never_has_two_writers_and_loses_what_it_says(kind: str, store: str, tmp_path: Path) -> None:
    lease = ("--lease-seconds", str(LEASE_S))
    first = command("take-over", "--site", "east", "--data-dir", str(tmp_path / "east"), *lease)
    assert (first["term"], first["cameFrom"], first["waitedS"]) == (1, "", 0)
    answers, pods = kind.startswith("alive"), 3 if kind == "alive but for a pod" else 2
    with ExitStack() as stack:
        east = stack.enter_context(of_site(tmp_path / "east", "east", pods))
        old = SiteClients(east.wait_ready(), GROUPS)
        stack.callback(old.stop)
        wait_until(lambda: len(old.acked) > 100 and len(old.highest()) == GROUPS, "clients commit")
        command("create", "--data-dir", str(east.data))
        reached = len(old.acked)
        wait_until(lambda: len(old.acked) > reached + 100, "clients commit what the backup has not")
        if kind == "dead":
            east.__exit__()
        elif kind == "cut off":
            send(east, signal.SIGSTOP)
        elif kind == "alive but for a pod":
            send(east, signal.SIGSTOP, one=True)
            before = old.highest()
            wait_until(lambda: all(old.highest()[group] > before[group] for group in before), "others lead all groups")
        target = ("--restore-to", str(tmp_path / "west"))
        unasked = () if answers else ("--yes",)
        done = command("take-over", "--site", "west", "--data-dir", str(east.data), *target, *lease, *unasked)
        assert (done["term"], done["cameFrom"]) == (3, "east")
        assert (done["mayLackSinceMs"] is None) == answers
        west = stack.enter_context(of_site(tmp_path / "west", "west", pods))
        bootstrap = west.wait_ready()
        found, certain = offsets(bootstrap), old.highest(done["mayLackSinceMs"] or float("inf"))
        assert certain
        assert all(certain[group] <= found[group] <= old.begun[group] for group in certain), (certain, found)
        new = SiteClients(bootstrap, GROUPS, first=FIRST_AT_WEST)
        stack.callback(new.stop)
        wait_until(lambda: len(new.highest()) == GROUPS, "clients commit at the new site")
        back = east
        if kind in ("cut off", "alive but for a pod"):
            send(east, signal.SIGCONT, one=kind != "cut off")
        elif kind == "dead":
            old.stop()
            back = stack.enter_context(of_site(east.data, "east", pods))
            late = SiteClients(back.wait_ready(), GROUPS, first=FIRST_AT_WEST)
            stack.callback(late.stop)
            wait_until(lambda: late.refused > 2 * GROUPS, "clients of the old site are refused")
            assert late.acked == []
        is_left_behind(back)
        refused = old.refused
        wait_until(lambda: kind == "dead" or old.refused > refused + GROUPS, "clients of the old site try again")
        new.stop()
        old.stop()
        assert (west.stop(), back.stop()) == (0, 0)
    began_ms = min(each.begun_ms for each in new.acked)
    last_ms = max(each.acked_ms for each in old.acked)
    assert last_ms < began_ms, "the old site has acknowledged after the new one had begun to"
    both_logs(tmp_path, old, new, began_ms)


def offsets(bootstrap: str) -> dict[str, int]:
    """Asked as clients do, until the site has its lease."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return {name: committed(bootstrap, name) for name in (f"group-{number}" for number in range(GROUPS))}
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def is_left_behind(east: LocalCluster) -> None:
    """It says so, and nobody takes its records for what goes on."""
    deadline = time.monotonic() + 60
    while True:
        done = muster("backup", "create", "--store", STORE, "--data-dir", str(east.data))
        if "site west has taken over" in done.stderr:
            assert done.returncode == 1
            return
        assert time.monotonic() < deadline, done
        time.sleep(0.2)


def both_logs(root: Path, old: SiteClients, new: SiteClients, began_ms: int) -> None:
    """What was acknowledged is in the log of the site that acknowledged it, and in the old one nothing that was
    acknowledged came after the first commit at the new one."""
    east, west = (
        {(group, offset): time_ms for group, offset, time_ms in commits_in_logs(root / name)}
        for name in ("east", "west")
    )
    acked = {(each.group, each.offset) for each in old.acked}
    assert [each for each in acked if east[each] >= began_ms] == []
    assert [each for each in new.acked if (each.group, each.offset) not in west] == []
    assert not acked.intersection(key for key, time_ms in west.items() if time_ms >= began_ms)
