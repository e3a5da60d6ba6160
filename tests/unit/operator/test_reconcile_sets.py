"""The operator against pods that replicate, over real HTTP: sets of three, failover, hand-over, a lost volume."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.unit.operator.fakes import world
from tests.unit.operator.test_reconcile import failovers_of, led_by
from tests.unit.podapi.fake_server import eventually
from tests.unit.podapi.fake_volume import FakeVolume

from muster_operator.api.models import PartitionState
from muster_operator.store.workload import PodPhase


async def test_killed_pod_of_a_set_of_three_is_led_elsewhere_and_everybody_is_told(tmp_path: Path) -> None:
    async with world(tmp_path, replication_factor=3) as town, town.operator():
        await town.until_ready()
        await town.stop_pod(0)
        await eventually(lambda: {*led_by(town.pods[1]), *led_by(town.pods[2])} == set(range(6)))
        await eventually(lambda: all(leader.node_id in (1, 2) for leader in town.pods[1].images[-1].leaders))
        for index in (0, 3):
            led = await town.until_state(index, PartitionState.LED)
            while led.status.epoch == 0:
                await asyncio.sleep(0.005)
                led = await town.partition(index)
            assert (led.status.epoch, led.status.led_epoch) == (1, 1)
        async with asyncio.timeout(10):
            while len(failovers := await failovers_of(town)) < 2:
                await asyncio.sleep(0.005)
    assert {(each.partition, each.planned, each.previous_leader) for each in failovers} == {
        *(("t-0", False, "c-0"), ("t-3", False, "c-0"))
    }


async def test_image_names_peers_and_places_of_all_replicas(tmp_path: Path) -> None:
    async with world(tmp_path, replication_factor=3, partitions=2) as town, town.operator():
        await town.until_ready()
        await eventually(lambda: len(town.pods[0].images[-1].places) == 6)
    image = town.pods[0].images[-1]
    assert [(peer.pod, peer.port) for peer in image.peers] == [("c-0", 19092), ("c-1", 19093), ("c-2", 19094)]
    held = {(index, each.log_id, pod.name) for pod in town.pods.values() for index, each in pod.volume.replicas.items()}
    assert {(place.partition, place.log_id, place.pod) for place in image.places} == held


async def test_draining_pod_of_a_set_of_three_hands_over_and_is_told_so(tmp_path: Path) -> None:
    async with world(tmp_path, replication_factor=3) as town, town.operator():
        await town.until_ready()
        await town.pods[2].drain()
        await eventually(lambda: {*led_by(town.pods[0]), *led_by(town.pods[1])} == set(range(6)))
        async with asyncio.timeout(10):
            while len(failovers := await failovers_of(town)) < 2:
                await asyncio.sleep(0.005)
    assert {(each.planned, each.previous_leader) for each in failovers} == {(True, "c-2")}
    assert led_by(town.pods[2]) == {}


async def test_pod_that_is_deleted_by_force_hands_over_while_its_process_lives(tmp_path: Path) -> None:
    async with world(tmp_path, replication_factor=3) as town, town.operator():
        await town.until_ready()
        successor = replace(town.workload.infos["c-2"], uid="another", api_address="", phase=PodPhase.PENDING)
        town.workload.put(successor)
        await eventually(lambda: {*led_by(town.pods[0]), *led_by(town.pods[1])} == set(range(6)))
        async with asyncio.timeout(10):
            while len(failovers := await failovers_of(town)) < 2:
                await asyncio.sleep(0.005)
        assert {(each.planned, each.previous_leader) for each in failovers} == {(True, "c-2")}
        await town.stop_pod(2)
        town.addresses.pop(2)  # the next one has an address of its own
        again = await town.start_pod(2)
        await eventually(lambda: bool(again.images) and len(again.images[-1].brokers) == 3)


async def test_lost_volume_of_one_of_three_is_filled_again(tmp_path: Path) -> None:
    async with world(tmp_path, replication_factor=3, partitions=3) as town, town.operator():
        await town.until_ready()
        await town.stop_pod(1)
        old = {each.log_id for each in town.volumes[1].replicas.values()}
        town.volumes[1] = FakeVolume()
        await town.start_pod(1)
        async with asyncio.timeout(10):
            while True:
                statuses = [each.status for each in (await town.records()).partitions]
                ids = {replica.log_id for status in statuses for replica in status.replicas}
                whole = all(s.following == 3 and not s.previous_replicas and not s.learners for s in statuses)
                if whole and not ids & old:
                    break
                await asyncio.sleep(0.01)
    assert len(town.volumes[1].replicas) == 3


async def test_two_operators_fail_over_sets_of_three_without_an_epoch_given_twice(tmp_path: Path) -> None:
    async with world(tmp_path, replication_factor=3) as town:
        accepted: Counter[tuple[int, int]] = Counter()
        async with town.operator(), town.operator():
            await town.until_ready()
            for number in (0, 1, 2):
                accepted.update(town.pods[number].accepted)
                await town.stop_pod(number)
                alive = [pod for other, pod in town.pods.items() if other != number]
                await eventually(lambda pods=alive: set().union(*map(led_by, pods)) == set(range(6)))
                await town.start_pod(number)
            await town.until_ready()
        accepted.update(each for pod in town.pods.values() for each in pod.accepted)
    assert max(accepted.values()) == 1
