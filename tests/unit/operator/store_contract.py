"""What every Store must do. A test module subclasses `StoreContract` and gives it a `store` fixture.

The fixture gives (store, apply): `apply` creates an object or sets its spec, as a person would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from tests.unit.podapi.fake_server import eventually

from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    LeadershipRecord,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsTopic,
    OffsetsTopicSpec,
    PartitionState,
    Replica,
    Resource,
    TopicRef,
)
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError, Store

NAMESPACE = "contract"
KEY = ClusterKey(NAMESPACE, "c")

Apply = Callable[[Resource], Awaitable[None]]
Subject = tuple[Store, Apply]


def meta(name: str) -> ObjectMeta:
    return ObjectMeta(name, NAMESPACE)


def cluster(pods: int = 3) -> CoordinatorCluster:
    return CoordinatorCluster(meta("c"), CoordinatorClusterSpec(pods=pods, image="muster:test"))


def topic(name: str = "t", cluster_name: str = "c", partitions: int = 4) -> OffsetsTopic:
    return OffsetsTopic(meta(name), OffsetsTopicSpec(ClusterRef(cluster_name), partitions=partitions))


class StoreContract:
    async def _partitions(self, subject: Subject, *indexes: int) -> tuple[OffsetsPartition, ...]:
        store, apply = subject
        await apply(cluster())
        await apply(topic())
        await store.create_partitions((await store.observe(KEY)).topics[0], indexes)
        return (await store.observe(KEY)).partitions

    async def test_unknown_key_observes_nothing(self, store: Subject) -> None:
        records = await store[0].observe(ClusterKey(NAMESPACE, "absent"))
        assert (records.cluster, records.topics, records.partitions) == (None, (), ())

    async def test_observe_gives_cluster_topics_and_partitions_in_order(self, store: Subject) -> None:
        partitions = await self._partitions(store, 2, 0, 1)
        records = await store[0].observe(KEY)
        assert records.cluster is not None
        assert records.cluster.spec.pods == 3
        assert [each.metadata.name for each in records.topics] == ["t"]
        assert [each.spec.index for each in partitions] == [0, 1, 2]
        assert KEY in await store[0].clusters()

    async def test_objects_have_identity_version_and_generation(self, store: Subject) -> None:
        await self._partitions(store, 0)
        found = (await store[0].observe(KEY)).cluster
        assert found is not None
        assert found.metadata.uid
        assert found.metadata.resource_version
        assert found.metadata.creation_timestamp
        assert found.metadata.generation == 1

    async def test_changed_spec_is_another_generation(self, store: Subject) -> None:
        await self._partitions(store, 0)
        await store[1](cluster(pods=5))
        found = (await store[0].observe(KEY)).cluster
        assert found is not None
        assert (found.spec.pods, found.metadata.generation) == (5, 2)

    async def test_partitions_created_again_stay_as_they_are(self, store: Subject) -> None:
        [before] = await self._partitions(store, 0)
        await store[0].write_partition_status(before, replace(before.status, leader="c-0", epoch=7))
        [shown] = (await store[0].observe(KEY)).partitions
        [again] = await self._partitions(store, 0)
        assert again == shown

    async def _topic(self, subject: Subject) -> OffsetsTopic:
        await self._partitions(subject, 0, 1, 2)
        return (await subject[0].observe(KEY)).topics[0]

    async def test_recorded_leadership_comes_back_as_written(self, store: Subject) -> None:
        seen = await self._topic(store)
        replicas = (Replica("c-0", "log"), Replica("c-1", "other"))
        left = (Replica("c-2", "gone"),)
        record = {
            "0": LeadershipRecord("c-0", 3, 2, replicas, replicas[:1], replicas[1:], left).line,
            "2": LeadershipRecord(epoch=7).line,
        }
        after = await store[0].record_leadership(seen, record)
        assert after.status == replace(seen.status, leaderships=record)
        assert after.metadata.resource_version != seen.metadata.resource_version
        assert (await store[0].observe(KEY)).topics == (after,)
        without = await store[0].record_leadership(after, {"2": record["2"]})
        assert without.status.leaderships == {"2": LeadershipRecord(epoch=7).line}

    async def test_second_record_of_the_same_version_conflicts_and_changes_nothing(self, store: Subject) -> None:
        seen = await self._topic(store)
        first = await store[0].record_leadership(
            seen, {"0": LeadershipRecord("c-0", 1).line, "1": LeadershipRecord("c-1", 1).line}
        )
        with pytest.raises(ConflictError):
            await store[0].record_leadership(seen, {"2": LeadershipRecord("c-2", 1).line})
        assert (await store[0].observe(KEY)).topics == (first,)

    async def test_concurrent_records_of_one_version_let_exactly_one_win(self, store: Subject) -> None:
        seen = await self._topic(store)
        results = await asyncio.gather(
            *(store[0].record_leadership(seen, {"0": LeadershipRecord(f"c-{n}", 1).line}) for n in range(8)),
            return_exceptions=True,
        )
        won = [each for each in results if isinstance(each, OffsetsTopic)]
        assert len(won) == 1
        assert sum(isinstance(each, ConflictError) for each in results) == 7
        assert (await store[0].observe(KEY)).topics == tuple(won)

    async def test_status_of_the_topic_that_overlooks_a_record_conflicts(self, store: Subject) -> None:
        seen = await self._topic(store)
        recorded = await store[0].record_leadership(seen, {"0": LeadershipRecord("c-0", 1).line})
        with pytest.raises(ConflictError):
            await store[0].write_topic_status(seen, replace(seen.status, led=1))
        await store[0].write_topic_status(recorded, replace(recorded.status, led=1))
        status = (await store[0].observe(KEY)).topics[0].status
        assert (status.led, status.leaderships) == (1, {"0": LeadershipRecord("c-0", 1).line})

    async def test_record_for_a_topic_that_is_gone_is_not_found(self, store: Subject) -> None:
        seen = await self._topic(store)
        gone = replace(seen, metadata=replace(seen.metadata, name="gone"))
        with pytest.raises(NotFoundError):
            await store[0].record_leadership(gone, {"0": LeadershipRecord("c-0", 1).line})

    async def test_status_of_a_partition_comes_back_as_written(self, store: Subject) -> None:
        [seen] = await self._partitions(store, 0)
        status = replace(
            seen.status,
            leader="c-0",
            epoch=3,
            replicas=(Replica("c-0", "log"),),
            state=PartitionState.ELECTING,
            reason="Electing",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        await store[0].write_partition_status(seen, status)
        [after] = (await store[0].observe(KEY)).partitions
        assert after.status == status
        assert after.metadata.resource_version != seen.metadata.resource_version

    async def test_status_of_a_partition_that_was_overtaken_conflicts_and_leaves_the_others(
        self, store: Subject
    ) -> None:
        partitions = await self._partitions(store, 0, 1, 2)
        await store[0].write_partition_status(partitions[1], replace(partitions[1].status, epoch=1))
        results = await asyncio.gather(
            *(
                store[0].write_partition_status(each, replace(each.status, leader="c-0", epoch=2))
                for each in partitions
            ),
            return_exceptions=True,
        )
        assert [isinstance(each, ConflictError) for each in results] == [False, True, False]
        assert [each.status.epoch for each in (await store[0].observe(KEY)).partitions] == [2, 1, 2]

    async def test_status_of_a_partition_that_is_gone_is_not_found(self, store: Subject) -> None:
        [seen] = await self._partitions(store, 0)
        gone = replace(seen, metadata=replace(seen.metadata, name="gone-0"))
        with pytest.raises(NotFoundError):
            await store[0].write_partition_status(gone, gone.status)

    async def test_status_of_cluster_and_topic_come_back_as_written(self, store: Subject) -> None:
        await self._partitions(store, 0)
        records = await store[0].observe(KEY)
        assert records.cluster is not None
        await store[0].write_cluster_status(records.cluster, replace(records.cluster.status, led=1, bootstrap="h:1"))
        await store[0].write_topic_status(records.topics[0], replace(records.topics[0].status, led=1))
        after = await store[0].observe(KEY)
        assert after.cluster is not None
        assert (after.cluster.status.led, after.cluster.status.bootstrap) == (1, "h:1")
        assert after.topics[0].status.led == 1
        assert after.cluster.metadata.generation == 1

    async def test_topic_of_an_unknown_cluster_is_observed_under_its_name(self, store: Subject) -> None:
        await store[1](topic("lost", "nowhere"))
        records = await store[0].observe(ClusterKey(NAMESPACE, "nowhere"))
        assert records.cluster is None
        assert [each.metadata.name for each in records.topics] == ["lost"]

    async def test_partition_of_an_unknown_topic_is_observed_under_the_empty_name(self, store: Subject) -> None:
        await store[1](OffsetsPartition(meta("orphan-0"), OffsetsPartitionSpec(TopicRef("absent"), 0)))
        records = await store[0].observe(ClusterKey(NAMESPACE, ""))
        assert "orphan-0" in [each.metadata.name for each in records.partitions]

    async def test_watch_tells_what_exists_and_then_every_change(self, store: Subject) -> None:
        [seen] = await self._partitions(store, 0)
        told: list[ClusterKey] = []
        store[0].watch(told.append)
        await eventually(lambda: KEY in told)
        told.clear()
        await store[0].write_partition_status(seen, replace(seen.status, epoch=1))
        await eventually(lambda: KEY in told)
        told.clear()
        await store[1](cluster(pods=5))
        await eventually(lambda: KEY in told)

    async def test_fencing_token_stays_while_the_store_is_open(self, store: Subject) -> None:
        assert await store[0].fencing_token(KEY) == await store[0].fencing_token(KEY)
