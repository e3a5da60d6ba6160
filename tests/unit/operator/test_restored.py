"""A cluster that begins from a backup has no pods before its volumes are made, and no partition that begins empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import World, world
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_adopt import made, obey

from muster_operator.api.conditions import Condition, Reason, find_condition
from muster_operator.api.models import (
    BackupStore,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    Layout,
    RestoreFrom,
    RestorePhase,
    RestorePlan,
    RestoreStatus,
)
from muster_operator.plan.actions import WriteClusterStatus
from muster_operator.plan.observation import Observation
from muster_operator.plan.planner import plan
from muster_operator.plan.restore_facts import Made, RestoreClaim, RestoreFacts

SOURCE = RestoreFrom(BackupStore(claim="backups"))
DONE = RestoreStatus(RestorePhase.COMPLETED, "20261128T091702Z-abcdef", offsets=Layout(0, 4))


def with_restore(cluster: CoordinatorCluster, status: RestoreStatus | None) -> CoordinatorCluster:
    spec = replace(cluster.spec, restore_from=SOURCE)
    return replace(cluster, spec=spec, status=replace(cluster.status, restore=status))


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def condition(town: World) -> Condition | None:
    cluster = (await town.records()).cluster
    assert cluster is not None
    return find_condition(cluster.status.conditions, "Restored")


async def test_no_pod_is_asked_for_before_the_restore_is_over(town: World) -> None:
    """Nothing here restores, so it is never over by itself."""
    cluster = (await town.records()).cluster
    assert cluster is not None
    await town.store.apply(with_restore(cluster, None))
    async with town.operator(), asyncio.timeout(30):
        while (shown := await condition(town)) is None:
            await asyncio.sleep(0.005)
        assert (shown.status, shown.reason) == ("False", Reason.RESTORING)
        assert town.workload.ensured == 0
        cluster = (await town.records()).cluster
        assert cluster is not None
        status = replace(cluster.status, restore=DONE)
        await town.store.write_cluster_status(cluster, status)
        while not town.workload.ensured:
            await asyncio.sleep(0.005)


def test_partition_of_the_backup_that_is_on_no_volume_waits_for_a_persons_word() -> None:
    model = Model(replication_factor=1)
    model.cluster = with_restore(model.cluster, DONE)
    Operator(model).settle()
    assert {each.status.reason for each in model.objects.values()} == {Reason.RESTORED_LOG_MISSING}
    assert not any(each.status.replicas for each in model.objects.values())
    assert not any(pod.replicas for pod in Operator(model).observe().pods)
    for name in [*model.objects]:
        obey(model, name)
    Operator(model, token=2).settle()
    assert model.all_led


def test_partition_whose_log_is_there_is_led_and_one_that_the_backup_did_not_have_begins() -> None:
    model = made(factor=1)
    model.recreate()
    status = replace(DONE, offsets=Layout(0, 3))
    model.cluster = with_restore(model.cluster, status)
    Operator(model, token=2).settle()
    assert model.all_led


def verdict(cluster: CoordinatorCluster, facts: RestoreFacts | None) -> CoordinatorClusterStatus:
    seen = Observation("ns", "c", cluster, restore=facts)
    [written] = [each for each in plan(seen, 1.0) if isinstance(each, WriteClusterStatus)]
    return written.status


def test_cluster_says_why_it_has_no_pods_and_that_it_was_restored() -> None:
    subject = with_restore(Model().cluster, None)
    waiting = verdict(subject, RestoreFacts())
    ready, shown = (find_condition(waiting.conditions, kind) for kind in ("Ready", "Restored"))
    assert ready is not None
    assert shown is not None
    assert (ready.reason, ready.status, shown.status) == (Reason.RESTORING, "False", "False")
    noted = RestorePlan("20261128T091702Z-abcdef", 0, "id", 10, 1, Layout(0, 4))
    over = verdict(subject, RestoreFacts((RestoreClaim("data-c-0", 0, "u", noted, Made.ALL),)))
    shown = find_condition(over.conditions, "Restored")
    assert shown is not None
    assert (shown.status, shown.reason) == ("True", Reason.RESTORED)
    assert over.restore is not None
    assert (over.restore.phase, over.restore.offsets) == (RestorePhase.COMPLETED, Layout(0, 4))
