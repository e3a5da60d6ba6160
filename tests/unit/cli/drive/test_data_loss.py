"""`muster allow-data-loss`: only what the operator has found to help, and after a yes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.cli.drive.site import operator, say, site, spec, writes

PARTITION = ("offsetspartitions", "orders-0")
STALLED = (
    "1 of 3 replicas can be counted: log log-1 is not on pod orders-1 any more; log log-2 is not on pod orders-2 any"
    " more; left are logs on orders-0 up to offset 12 of epoch 3; commits reached offset 9 or more; to lead it from"
    " these, and lose what only the others had: kubectl -n shop patch offsetspartition orders-0 --type merge -p"
    """ '{"spec":{"allowDataLoss":3}}'"""
)


async def test_loss_is_told_from_the_logs_and_declared_after_a_yes(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        say(kubernetes, "orders-0", "Stalled", "NoMajority", STALLED)

        def lead(declared: dict[str, Any]) -> None:
            say(kubernetes, "orders-0", "Led", "Led", "pod orders-0 leads")

        code, _, err = await typed.run("allow-data-loss", "0", "-n", "shop")
        assert (code, "say --yes if that is meant" in err, writes(kubernetes)) == (2, True, set())
        assert "left are logs on orders-0 up to offset 12 of epoch 3" in err
        async with operator(kubernetes, lead, *PARTITION):
            code, out, err = await typed.run("allow-data-loss", "0", "-n", "shop", "--yes")
        assert (code, "commits reached offset 9 or more" in out, "Done after" in out) == (0, True, True), err
        assert spec(kubernetes, *PARTITION)["allowDataLoss"] == 3


async def test_loss_is_refused_for_a_led_partition_and_while_pods_may_come_back(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        code, _, err = await typed.run("allow-data-loss", "0", "-n", "shop", "--yes")
        assert (code, "there is no loss to allow" in err) == (1, True), err
        say(kubernetes, "orders-0", "Leaderless", "NoMajority", "pod orders-1 is down: connection refused")
        code, _, err = await typed.run("allow-data-loss", "0", "-n", "shop", "--yes")
        assert (code, "may still come back: pod orders-1 is down" in err) == (1, True), err
        say(kubernetes, "orders-0", "Stalled", "LogDamaged", "pod orders-0 refuses to serve its log")
        code, _, err = await typed.run("allow-data-loss", "0", "-n", "shop", "--yes")
        assert (code, "another reason holds it" in err) == (1, True), err
        assert writes(kubernetes) == set()
