"""The operator against pods that keep the epoch rules, over real HTTP: elections, restarts, refusals, losses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import KEY, World, cluster, topic, world
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_server import eventually
from tests.unit.podapi.fake_volume import FakeReplica, FakeVolume

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.models import Election
from muster_coordinator.states import ShardState
from muster_operator.api.models import Failover, FailoverRecord, LeadershipRecord, OffsetsTopic, PartitionState
from muster_operator.plan.actions import Action
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.plan.planner import plan
from muster_operator.reconcile import _next_steady
from muster_operator.store.port import ClusterKey


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


def led_by(pod: FakePod) -> dict[int, int]:
    return {each.partition: each.leader_epoch for each in pod.partitions() if each.state is ShardState.ACTIVE}


async def test_first_election_gives_every_partition_a_leader_in_epoch_0(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    partitions = (await town.records()).partitions
    assert [each.status.state for each in partitions] == [PartitionState.LED] * 6
    assert [each.status.epoch for each in partitions] == [0] * 6
    assert Counter(each.status.leader for each in partitions) == {"c-0": 2, "c-1": 2, "c-2": 2}
    assert all(each.bootstrap for pod in town.pods.values() for each in pod.elections)


async def test_elections_of_one_pod_go_in_one_call(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    assert [pod.election_calls for pod in town.pods.values()] == [1, 1, 1]


async def test_every_pod_gets_the_image_with_all_leaders(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await eventually(lambda: len({pod.images[-1] for pod in town.pods.values()}) == 1)
    image = town.pods[0].images[-1]
    assert [(leader.node_id, leader.epoch) for leader in image.leaders] == [(n, 0) for n in (0, 1, 2, 0, 1, 2)]
    assert [(topic.name, topic.partitions) for topic in image.topics] == [("orders", 6)]
    assert [broker.port for broker in image.brokers] == [9092, 9093, 9094]


async def test_cluster_status_counts_and_names_the_bootstrap(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    cluster = (await town.records()).cluster
    assert cluster is not None
    status = cluster.status
    assert (status.pods, status.ready_pods, status.partitions, status.led, status.leaderless) == (3, 3, 6, 6, 0)
    assert status.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert status.observed_generation == 1


async def test_restarted_pod_leads_again_in_a_higher_epoch(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.stop_pod(1)
        down = await town.until_state(1, PartitionState.LEADERLESS)
        assert down.status.reason == "PodDown"
        pod = await town.start_pod(1)
        await town.until_ready()
        assert led_by(pod) == {1: 1, 4: 1}
        assert [each.status.epoch for each in (await town.records()).partitions] == [0, 1, 0, 0, 1, 0]
        async with asyncio.timeout(10):
            while len(failovers := await failovers_of(town)) < 2:
                await asyncio.sleep(0.005)
    assert {(each.partition, each.epoch, each.leader) for each in failovers} == {("t-1", 1, "c-1"), ("t-4", 1, "c-1")}


async def test_pod_that_drains_is_not_elected_for_what_it_gives_up(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        calls = town.pods[1].election_calls
        await town.pods[1].drain()
        down = await town.until_state(1, PartitionState.LEADERLESS)
        assert "about to end" in down.status.conditions[0].message
        await town.until_state(4, PartitionState.LEADERLESS)
        assert town.pods[1].election_calls == calls
        await town.stop_pod(1)
        await town.start_pod(1)
        await town.until_ready()
    assert [each.status.epoch for each in (await town.records()).partitions] == [0, 2, 0, 0, 2, 0]


async def failovers_of(town: World) -> tuple[FailoverRecord, ...]:
    found = (await town.records()).cluster
    assert found is not None
    return found.status.last_failovers


async def test_pod_that_is_down_leads_nothing_in_the_image_and_stays_named(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.stop_pod(1)
        await town.until_state(1, PartitionState.LEADERLESS)
        await eventually(lambda: town.pods[0].images[-1].leaders[1].node_id == -1)
        assert [broker.node_id for broker in town.pods[0].images[-1].brokers] == [0, 1, 2]


async def test_new_operator_names_a_pod_that_it_has_never_seen_up(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    await town.stop_pod(1)
    before = len(town.pods[0].images)
    async with town.operator():
        await eventually(lambda: len(town.pods[0].images) > before)
        assert all({b.node_id for b in each.brokers} == {0, 1, 2} for each in town.pods[0].images[before:])


async def test_restart_that_is_faster_than_the_operator_is_noticed_by_its_epochs(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    await town.stop_pod(0)
    pod = await town.start_pod(0)
    async with town.operator():
        await eventually(lambda: led_by(pod) == {0: 1, 3: 1})
        await town.until_ready()


async def test_stale_epoch_is_answered_with_the_highest_seen_plus_1(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        town.pods[2].promise_elsewhere(2, 41)
        await eventually(lambda: led_by(town.pods[2]).get(2) == 42)
        await town.until_ready()
    assert (await town.partition(2)).status.epoch == 42


async def test_409_that_no_event_announced_is_followed_by_a_higher_epoch(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    await town.stop_pod(2)
    replica = town.volumes[2].replicas[2]
    pod = await town.start_pod(2)
    honest = pod._elect

    def promise_first(election: Election) -> CallResult:
        """Between the plan and the call somebody else's epoch 7 was promised; nothing told the operator."""
        if election.partition == 2:
            replica.promised = max(replica.promised, 7)
        return honest(election)

    pod._elect = promise_first  # type: ignore[method-assign]
    async with town.operator():
        await eventually(lambda: led_by(pod).get(2) == 8)
        await town.until_ready()
    assert [each.epoch for each in pod.elections if each.partition == 2] == [1, 8]
    assert town.metrics.elections.labels(CallStatus.STALE_EPOCH.value)._value.get() == 1


def with_epoch(topic: OffsetsTopic, index: int, epoch: int) -> dict[str, str]:
    """The record as another operator would write it that gives this epoch to the pod that leads."""
    record = topic.status.leaderships
    return {**record, str(index): replace(LeadershipRecord.parse(record[str(index)]), epoch=epoch).line}


async def test_lost_compare_and_swap_is_planned_again(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        (seen,) = (await town.records()).topics
        await town.store.record_leadership(seen, with_epoch(seen, 3, 9))
        await eventually(lambda: led_by(town.pods[0]).get(3) == 9)
        await town.until_ready()
    assert (await town.partition(3)).status.epoch == 9


async def test_lost_volume_stalls_the_partition_and_calls_nobody(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.stop_pod(1)
        town.volumes[1] = FakeVolume()
        pod = await town.start_pod(1)
        stalled = await town.until_state(1, PartitionState.STALLED)
        assert stalled.status.reason == "LogLost"
        assert "volume lost?" in stalled.status.conditions[0].message
        assert pod.elections == []
        assert pod.volume.replicas == {}
        others = [each for each in (await town.records()).partitions if each.status.leader != "c-1"]
        assert all(each.status.state is PartitionState.LED for each in others)


async def test_foreign_volume_with_a_log_of_its_own_stalls_the_partition(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.stop_pod(1)
        town.volumes[1] = FakeVolume({1: FakeReplica("foreign", promised=3, used=True, end_offset=9)})
        pod = await town.start_pod(1)
        stalled = await town.until_state(1, PartitionState.STALLED)
        assert stalled.status.reason == "LogLost"
        assert "foreign" in stalled.status.conditions[0].message
        assert pod.elections == []
        assert led_by(pod) == {}


async def test_election_whose_record_was_lost_is_not_called(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    await town.stop_pod(2)
    pod = await town.start_pod(2)
    record = town.store.record_leadership
    interfered: list[OffsetsTopic] = []

    async def overtaken(seen: OffsetsTopic, leaderships: Mapping[str, str]) -> OffsetsTopic:
        if not interfered:
            interfered.append(await record(seen, with_epoch(seen, 2, 30)))
        return await record(seen, leaderships)

    town.store.record_leadership = overtaken  # type: ignore[method-assign]
    async with town.operator():
        await eventually(lambda: 2 in led_by(pod))
        await town.until_ready()
    assert [each.epoch for each in pod.elections if each.partition == 2] == [30]
    assert (await town.partition(2)).status.epoch == 30
    assert town.metrics.conflicts._value.get() == 1


async def test_emptied_log_with_the_old_id_is_not_led(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.stop_pod(1)
        for replica in town.volumes[1].replicas.values():
            replica.used, replica.promised, replica.end_offset = False, -1, 0
        pod = await town.start_pod(1)
        assert (await town.until_state(1, PartitionState.STALLED)).status.reason == "LogLost"
        assert pod.elections == []


async def test_log_that_no_record_names_is_led_on_with_its_own_set(tmp_path: Path) -> None:
    async with world(tmp_path, pods=1, partitions=2) as town:
        log = FakeReplica("old", promised=5, used=True, end_offset=100, last_epoch=4, replicas=("old",))
        town.volumes[0].replicas[1] = log
        async with town.operator():
            led = await town.until_state(1, PartitionState.LED)
        assert (led.status.epoch, led.status.replicas[0].log_id) == (6, "old")
        assert not any(each.bootstrap for each in town.pods[0].elections if each.partition == 1)


async def test_log_that_names_no_set_is_used_when_a_person_names_its_pod(tmp_path: Path) -> None:
    async with world(tmp_path, pods=1, partitions=2) as town:
        town.volumes[0].replicas[1] = FakeReplica("old", promised=5, used=True)
        async with town.operator():
            stalled = await town.until_state(1, PartitionState.STALLED)
            assert stalled.status.reason == "UnknownLog"
            await town.until_state(0, PartitionState.LED)
            named = replace(stalled, spec=replace(stalled.spec, replicas=("c-0",)))
            await town.store.apply(named)
            led = await town.until_state(1, PartitionState.LED)
        assert (led.status.epoch, led.status.replicas[0].log_id) == (6, "old")


async def test_slow_load_is_led_when_its_event_comes(tmp_path: Path) -> None:
    async with world(tmp_path, pods=1, partitions=2) as town:
        pod = town.pods[0]
        pod.slow.add(1)
        async with town.operator():
            await town.until_state(0, PartitionState.LED)
            loading = await town.until_state(1, PartitionState.ELECTING)
            assert loading.status.epoch == 0
            pod.finish_loading(1)
            await town.until_state(1, PartitionState.LED)
        assert [each.epoch for each in pod.elections if each.partition == 1] == [0]


async def test_full_disk_leaves_the_partition_leaderless_until_there_is_room(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.stop_pod(0)
        pod = await town.start_pod(0)
        pod.full = True
        leaderless = await town.until_state(0, PartitionState.LEADERLESS)
        while leaderless.status.reason != "CannotWrite":
            await asyncio.sleep(0.01)
            leaderless = await town.partition(0)
        pod.full = False
        await town.until_ready()
    # It refused before promising, so the epoch that was issued to it is still good.
    assert (await town.partition(0)).status.epoch == 1


async def test_suspended_cluster_is_not_touched(tmp_path: Path) -> None:
    async with world(tmp_path) as town:
        await town.store.apply(cluster(suspend=True))
        async with town.operator():
            async with asyncio.timeout(10):
                while not (found := (await town.records()).cluster) or not found.status.conditions:
                    await asyncio.sleep(0.005)
            assert found.status.conditions[0].reason == "Suspended"
            assert (await town.records()).partitions == ()
            assert town.workload.ensured == 0
            await town.store.apply(cluster())
            await town.until_ready()


async def test_topic_of_an_unknown_cluster_says_so(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.store.apply(topic(name="lost", cluster_name="nowhere"))
        async with asyncio.timeout(10):
            while not (found := (await town.store.observe(ClusterKey("ns", "nowhere"))).topics[0]).status.conditions:
                await asyncio.sleep(0.005)
    assert found.status.conditions[0].reason == "ClusterNotFound"
    assert "nowhere" in found.status.conditions[0].message


async def test_second_topic_of_a_cluster_says_so_and_changes_nothing(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        await town.store.apply(topic(name="zz"))
        async with asyncio.timeout(10):
            while not (found := (await town.records()).topics[-1]).status.conditions:
                await asyncio.sleep(0.005)
    assert found.status.conditions[0].reason == "DuplicateTopic"
    assert len((await town.records()).partitions) == 6


async def test_operator_that_starts_again_changes_nothing_that_is_led(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    before = (await town.records()).partitions
    town.reopen_store()
    async with town.operator():
        await eventually(lambda: town.pods[0].images[-1].token == 2)
        await town.until_ready()
    assert (await town.records()).partitions == before
    assert [pod.election_calls for pod in town.pods.values()] == [1, 1, 1]


async def test_operator_of_a_restored_store_goes_above_the_tokens_that_pods_have_seen(town: World) -> None:
    """Its calls would be refused for ever: the token counts in the store, which is an old copy now."""
    for number, pod in town.pods.items():
        pod.tokens.note(40 + number)
    async with town.operator():
        await town.until_ready()  # logs were created
        await eventually(lambda: {pod.images[-1].token for pod in town.pods.values() if pod.images} == {43})
        assert {pod.tokens.highest for pod in town.pods.values()} == {43}


async def test_operator_that_another_one_replaced_is_refused_until_it_has_seen_that(town: World) -> None:
    async with town.operator():
        await town.until_ready()
        image = town.pods[0].images[-1]
        for pod in town.pods.values():
            pod.tokens.note(image.token + 1)
        await town.pods[0].drain()  # another image for all of them
        await eventually(lambda: all(pod.images[-1].token == image.token + 2 for pod in town.pods.values()))


async def test_two_operators_at_once_never_give_one_epoch_to_two_pods(town: World) -> None:
    async with town.operator(), town.operator():
        await town.until_ready()
        for number in (0, 1, 2):
            await town.stop_pod(number)
            await town.start_pod(number)
        await eventually(lambda: sum(len(led_by(pod)) for pod in town.pods.values()) == 6)
        await town.until_ready()
    accepted = Counter(each for pod in town.pods.values() for each in pod.accepted)
    assert max(accepted.values()) == 1


async def test_cluster_at_which_nothing_changes_is_not_planned_again(
    town: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Observation] = []

    def counted(seen: Observation, now: float) -> tuple[Action, ...]:
        planned.append(seen)
        return plan(seen, now)

    monkeypatch.setattr("muster_operator.reconcile.plan", counted)
    steady = Failover(rebalance_after="10ms")
    await town.store.apply(cluster(failover=steady))
    async with town.operator() as reconciler:
        await town.until_ready()
        await eventually(lambda: (reconciler.enqueue(KEY), reconciler._memory[KEY].calm)[1])
        before = len(planned)
        for _ in range(3):
            await reconciler.reconcile(KEY)
        assert len(planned) == before
        await town.store.apply(cluster(failover=steady, any_topic=True))
        await eventually(lambda: town.pods[0].images[-1].any_topic)
        await eventually(lambda: (reconciler.enqueue(KEY), reconciler._memory[KEY].calm)[1])
        before = len(planned)
        await town.stop_pod(2)
        await eventually(lambda: len(planned) > before)


async def test_metrics_count_elections_and_leaderless_partitions(town: World) -> None:
    async with town.operator():
        await town.until_ready()
    text = town.metrics.render().decode()
    assert 'muster_operator_elections_total{result="accepted"} 6.0' in text
    assert 'muster_operator_leaderless_partitions{cluster="c",namespace="ns"} 0.0' in text
    assert "muster_operator_cas_conflicts_total" in text
    assert "muster_operator_election_seconds_count 6.0" in text
    assert 'muster_operator_partitions{cluster="c",namespace="ns",state="Led"} 6.0' in text
    assert 'muster_operator_last_success_timestamp_seconds{cluster="c",namespace="ns"}' in text
    assert 'muster_operator_pod_call_seconds_count{call="elect"} 3.0' in text
    assert "muster_operator_pod_call_errors_total{" not in text
    assert value(town, "muster_operator_queue_seconds_count") > 0


def value(town: World, name: str, **labels: str) -> float:
    found = town.metrics.registry.get_sample_value(name, labels)
    return found or 0.0


async def test_metrics_tell_the_phases_of_a_failover_and_how_long_partitions_had_no_leader(town: World) -> None:
    place = {"namespace": "ns", "cluster": "c"}
    async with town.operator():
        await town.until_ready()
        assert value(town, "muster_operator_failover_phase_seconds_count", phase="noticed") == 0
        before = value(town, "muster_operator_leaderless_seconds_total", **place)
        await town.stop_pod(1)
        await town.until_state(1, PartitionState.LEADERLESS)
        await town.start_pod(1)
        await town.until_ready()
    assert value(town, "muster_operator_leaderless_seconds_total", **place) > before
    assert value(town, "muster_operator_partitions", state="Led", **place) == 6


async def test_gauges_of_a_cluster_that_is_gone_are_not_shown_any_more(town: World) -> None:
    town.metrics.forget("ns", "never-seen")
    async with town.operator():
        await town.until_ready()
    town.metrics.forget("ns", "c")
    page = town.metrics.render().decode()
    assert [line for line in page.splitlines() if 'cluster="c"' in line] == []


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        ([PodView("c-0", 0, Connection.UP, steady_s=4.0), PodView("c-1", 1, Connection.UP, steady_s=9.0)], 1.0),
        ([PodView("c-0", 0, Connection.DOWN, steady_s=4.0), PodView("c-1", 1, Connection.UP, steady_s=60.0)], 6.0),
        ([PodView("c-0", 0, Connection.DOWN, steady_s=599.0), PodView("c-1", 1, Connection.UP, steady_s=60.0)], 1.0),
        ([PodView("c-0", 0, Connection.UP, steady_s=599.0)], None),
    ],
)
def test_next_plan_comes_when_a_pod_has_been_up_or_away_for_long_enough(
    pods: list[PodView], seconds: float | None
) -> None:
    assert _next_steady(cluster(2), tuple(pods), {}, 0.0) == seconds
