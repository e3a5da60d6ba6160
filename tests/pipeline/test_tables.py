"""Tables against a replay of the same log, record by record: over several runs, and at past moments."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.pipeline.logs import commit

from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue
from muster_pipeline.source.follow import LogRewrittenError
from muster_pipeline.tables.current import offsets_of_logs
from muster_pipeline.tables.local import local_groups, local_offsets, local_quality, local_rebalances
from muster_pipeline.tables.read import read_arrow
from muster_pipeline.tables.run import read_table, run_tables
from muster_pipeline.tables.schemas import CARRIED, DERIVED, HISTORY
from muster_pipeline.tables.store import Manifest, Store, StoreError
from muster_pipeline.tables.transforms import current_groups, current_offsets, memberships

pytestmark = pytest.mark.timeout(400)
START_MS = 1_700_000_000_000
Place = tuple[str, str, int]
Offsets = dict[Place, tuple[int, OffsetCommitValue]]
Groups = dict[str, tuple[int, frozenset[str]]]  # generation and members


class Replay:
    """Committed offsets by Kafka's rules (OffsetMetadataManager#replay, #replayEndTransactionMarker)."""

    def __init__(self) -> None:
        self.committed: Offsets = {}
        self.pending: dict[int, Offsets] = {}
        self.lost: set[tuple[Place, int, int]] = set()
        """(place, offset of the removal, offset of the commit that it removed)."""

    def put(self, place: Place, offset: int, value: OffsetCommitValue, producer: int) -> None:
        (self.committed if producer < 0 else self.pending.setdefault(producer, {}))[place] = (offset, value)

    def remove(self, place: Place, offset: int) -> None:
        if place in self.committed:
            self.lost.add((place, offset, self.committed[place][1].offset))
        for offsets in (self.committed, *self.pending.values()):
            offsets.pop(place, None)

    def end_transaction(self, producer: int, committed: bool) -> None:
        for place, stored in self.pending.pop(producer, {}).items():
            if committed and (place not in self.committed or self.committed[place][0] < stored[0]):
                self.committed[place] = stored


class Writer:
    """A random partition log, and the committed offsets after each of its batches."""

    def __init__(self, root: Path, partition: int, producers: Sequence[int] = (-1, -1, -1, 1, 2)) -> None:
        self.producers = producers
        self.directory = root / f"__consumer_offsets-{partition}"
        self.directory.mkdir(parents=True)
        self.chance = random.Random(partition)
        self.partition = partition
        self.offset = 0
        self.replay = Replay()
        self.states: list[tuple[int, Offsets]] = []
        self.groups: Groups = {}
        self.group_states: list[tuple[int, Groups]] = []
        self.roll()

    def roll(self) -> None:
        self.path = self.directory / f"{self.offset:020d}.log"

    @property
    def now_ms(self) -> int:
        return START_MS + 1000 * self.offset

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self._write_batch()
            self.states.append((self.now_ms - 1000, self.offsets()))

    def offsets(self) -> Offsets:
        return dict(self.replay.committed)

    def _write_batch(self) -> None:
        producer = self.chance.choice(self.producers)
        if producer > 0 and self.chance.random() < 0.4:
            marker = EndTxnMarker(self.chance.random() < 0.7, 0)
            self._append([encode_end_txn_marker(marker)], producer, control=True)
            self.replay.end_transaction(producer, marker.committed)
            return
        records = [self._record(producer) for _ in range(self.chance.randint(1, 4))]
        for index, (key, value) in enumerate(records):
            change = decode_record(key, value)
            assert isinstance(change, OffsetCommitRecord)
            place = (change.group_id, change.topic, change.partition)
            if change.value is None:
                self.replay.remove(place, self.offset + index)
            else:
                self.replay.put(place, self.offset + index, change.value, producer)
        self._append(records, producer)

    def _record(self, producer: int) -> tuple[bytes, bytes | None]:
        group = f"group-{self.partition}-{self.chance.randint(0, 3)}"
        key, value = commit(group, "orders", self.chance.randint(0, 2), self.chance.randint(0, 10**6), "m")
        return key, None if producer < 0 and self.chance.random() < 0.2 else value

    def _append(self, records: list[tuple[bytes, bytes | None]], producer: int, control: bool = False) -> None:
        batch = encode_batch(
            records,
            base_offset=self.offset,
            leader_epoch=1,
            timestamp_ms=self.now_ms,
            producer_id=producer,
            producer_epoch=0 if producer > 0 else -1,
            transactional=producer > 0,
            control=control,
        )
        with self.path.open("ab") as file:
            file.write(batch)
        self.offset += len(records)

    def write_groups(self, count: int) -> None:
        """Generations of three groups, and now and then the removal of one."""
        for _ in range(count):
            group = f"team-{self.partition}-{self.chance.randint(0, 2)}"
            if self.chance.random() < 0.15:
                self._append([(encode_group_metadata_key(group), None)], -1)
                self.groups.pop(group, None)
            else:
                members = self.chance.sample("abcd", self.chance.randint(0, 3))
                generation = self.chance.randint(0, 5)
                self.write_group(generation, *members, group=group)
                self.groups[group] = (generation, frozenset(members))
            self.group_states.append((self.now_ms - 1000, dict(self.groups)))

    def write_group(self, generation: int, *members: str, group: str = "team") -> None:
        value = GroupMetadataValue(
            "consumer",
            generation,
            "range",
            members[0] if members else None,
            self.now_ms,
            tuple(GroupMember(name, None, "client", "/h", 60_000, 45_000, b"", b"") for name in members),
        )
        self._append([(encode_group_metadata_key(group), encode_group_metadata_value(value))], -1)


def as_offsets(frame: DataFrame) -> Offsets:
    return rows_as_offsets(frame.collect())


def rows_as_offsets(rows: Sequence[Any]) -> Offsets:
    found = {
        (row["group"], row["topic"], row["partition"]): (
            row["offset"],
            OffsetCommitValue(
                row["committed_offset"],
                row["committed_leader_epoch"],
                row["metadata"],
                row["commit_timestamp_ms"],
                row["expire_timestamp_ms"],
            ),
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def table(spark: SparkSession, target: Path, name: str) -> DataFrame:
    store = Store(target)
    return read_table(spark, store, store.published(), name)


def test_runs_append_what_is_new_and_agree_with_a_replay_at_every_moment(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    logs = [Writer(source, partition) for partition in range(2)]
    for log in logs:
        log.write(60)
    first = run_tables(spark, [str(source)], target)
    assert as_offsets(table(spark, target, "current_offsets")) == logs[0].offsets() | logs[1].offsets()
    logs[0].roll()
    logs[0].write(40)
    logs[1].write(40)
    lost = target / "data" / "commits" / f"{first.run + 1:06d}"  # of a run that did not end
    lost.mkdir()
    (lost / "part.parquet").write_bytes(b"half a file")
    second = run_tables(spark, [str(source)], target)
    assert as_offsets(table(spark, target, "current_offsets")) == logs[0].offsets() | logs[1].offsets()
    assert sum(second.kinds.values()) == logs[0].offset + logs[1].offset
    with offsets_of_logs(spark, [str(source)]) as now:
        assert as_offsets(now) == logs[0].offsets() | logs[1].offsets()
    history = [table(spark, target, name) for name in ("commits", "tombstones", "transactions")]
    for moment in (30, 75):
        at_ms, state = logs[0].states[moment]
        past = current_offsets(*history, at_ms=at_ms + 999).where("offsets_partition = 0")
        assert as_offsets(past) == state
        with offsets_of_logs(spark, [str(logs[0].directory)], at_ms + 999) as past:
            assert as_offsets(past) == state
        for sources in ([str(target)], [str(source)]):
            local = local_offsets(sources, at_ms + 999)
            assert rows_as_offsets(local.filter(pc.equal(local["offsets_partition"], 0)).to_pylist()) == state
    third = run_tables(spark, [str(source)], target)
    assert third.kinds == second.kinds
    assert table(spark, target, "commits").count() == second.kinds["offset_commit"]


@pytest.mark.usefixtures("few_rows")
def test_offsets_of_logs_without_transactions_are_those_of_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    log = Writer(tmp_path, 0, producers=(-1,))
    log.write(60)
    with offsets_of_logs(spark, [str(tmp_path)]) as now:
        assert as_offsets(now) == log.offsets()


class NoSpark:
    """Of a run that must not need any."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the run asked Spark for {name}")


def rows_of(target: Path, name: str) -> list[dict[str, Any]]:
    """Without Spark, which takes longer for so few."""
    store = Store(target)
    rows: list[dict[str, Any]] = read_arrow(store, store.published(), name).to_pylist()
    return sorted(rows, key=repr)


def assert_same_tables(one: Path, other: Path) -> None:
    for name in (*HISTORY, *DERIVED, *CARRIED):
        assert rows_of(one, name) == rows_of(other, name), name


@pytest.mark.usefixtures("few_rows")
def test_many_runs_give_the_tables_of_one_run_and_a_run_without_news_reads_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_pipeline.tables.store.MERGE_FROM", 3)
    source, often, once = tmp_path / "source", tmp_path / "often", tmp_path / "once"
    logs = [Writer(source, partition) for partition in range(2)]
    for slice_ in range(3):
        for log in logs[: 1 if slice_ == 1 else 2]:
            for _ in range(8):
                log.write(4)
                log.write_groups(2)
        made = run_tables(spark, [str(source)], often)
    assert made.run == 3
    assert made.tables["rebalances"] == ["data/rebalances/000001-000003"]
    assert run_tables(NoSpark(), [str(source)], often) == made  # type: ignore[arg-type]
    run_tables(spark, [str(source)], once)
    assert_same_tables(often, once)
    assert rows_as_offsets(rows_of(often, "current_offsets")) == logs[0].offsets() | logs[1].offsets()
    lost = {
        ((row["group"], row["topic"], row["partition"]), row["offset"], row["committed_offset"])
        for row in rows_of(often, "expiries")
    }
    assert lost == logs[0].replay.lost | logs[1].replay.lost
    assert rows_of(often, "open_commits")
    older = Store(often).published()  # of a version that carried nothing from run to run
    tables = {name: each for name, each in older.tables.items() if name not in CARRIED}
    Store(often).publish(replace(older, tables=tables))
    logs[1].write(5)
    run_tables(spark, [str(source)], often)
    run_tables(spark, [str(source)], once)
    assert_same_tables(often, once)


@pytest.mark.usefixtures("few_rows")
def test_groups_and_members_of_any_past_moment_are_those_of_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    log = Writer(source, 0)
    for _ in range(10):
        log.write(2)
        log.write_groups(4)
    run_tables(spark, [str(source)], target)
    generations, tombstones = table(spark, target, "generations"), table(spark, target, "tombstones")
    now = current_groups(generations, tombstones)
    assert {row["group"]: row["generation"] for row in now.collect()} == {
        group: generation for group, (generation, _) in log.groups.items()
    }
    for moment in (0, 9, 22, 31):
        at_ms, state = log.group_states[moment]
        past = current_groups(generations, tombstones, at_ms + 999)
        found = {row["group"]: (row["generation"], frozenset[str]()) for row in past.collect()}
        for row in memberships(past).collect():
            generation, members = found[row["group"]]
            found[row["group"]] = (generation, members | {row["member_id"]})
        assert found == state
        for sources in (target, source):
            local = local_groups([str(sources)], at_ms + 999).to_pylist()
            assert {
                row["group"]: (row["generation"], frozenset(each["member_id"] for each in row["members"]))
                for row in local
            } == state


def test_rebalances_say_who_joined_and_who_left(spark: SparkSession, tmp_path: Path) -> None:
    log = Writer(tmp_path / "source", 0)
    for generation, members in [(0, ""), (1, "a"), (2, "ab"), (2, "ab"), (3, "b"), (4, "")]:
        log.write_group(generation, *members)
    run_tables(spark, [str(tmp_path / "source")], tmp_path / "target")
    rows = table(spark, tmp_path / "target", "rebalances").orderBy("offset").collect()
    assert [
        (row["previous_generation"], row["generation"], row["members_after"], row["joined"], row["left"])
        for row in rows
    ] == [
        (None, 0, 0, [], []),
        (0, 1, 1, ["a"], []),
        (1, 2, 2, ["b"], []),
        (2, 3, 1, [], ["a"]),
        (3, 4, 0, [], ["b"]),
    ]
    for sources in (tmp_path / "target", tmp_path / "source"):
        local = local_rebalances([str(sources)]).sort_by("offset").to_pylist()
        assert local == [row.asDict(recursive=True) for row in rows]
    assert local_rebalances([str(tmp_path / "source")], ["other"]).num_rows == 0
    members: list[Any] = table(spark, tmp_path / "target", "memberships").where("is_leader").collect()
    assert sorted((row["generation"], row["member_id"]) for row in members) == [(1, "a"), (2, "a"), (2, "a"), (3, "b")]


def test_quality_lists_damage_once_and_a_tail_as_it_is_now(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    log = Writer(source, 0)
    log.write(5)
    content = bytearray(log.path.read_bytes())
    content[70] ^= 1
    log.path.write_bytes(content + bytes(50))
    run_tables(spark, [str(source)], target)
    problems = [row["problem"] for row in table(spark, target, "quality").collect()]
    assert sorted(problems) == ["bad_crc", "zero_tail"]
    for sources in (source, target):
        assert sorted(local_quality([str(sources)])["problem"].to_pylist()) == ["bad_crc", "zero_tail"]
    log.path.write_bytes(content)
    log.write(3)
    known = {"file": "x", "kind": "damaged", "problem": "journal_only", "problem_bytes": 7}
    for _ in range(2):
        run_tables(spark, [str(source)], target, extra_problems=lambda segments: [known] * len(segments))
        problems = [row["problem"] for row in table(spark, target, "quality").collect()]
        assert sorted(problems) == ["bad_crc", "journal_only"]
    manifest = run_tables(NoSpark(), [str(source)], target)  # type: ignore[arg-type]
    assert [row["problem"] for row in table(spark, target, "quality").collect()] == ["bad_crc"]
    assert manifest.kinds["damaged"] == 1
    log.path.write_bytes(content[:200])
    with pytest.raises(LogRewrittenError, match=r"was truncated below what was read.* make new ones in another place"):
        run_tables(NoSpark(), [str(source)], target)  # type: ignore[arg-type]
    assert Store(target).published() == manifest


def test_store_refuses_two_runs_at_once_and_a_manifest_that_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="holds no tables"):
        store.published()
    with store.writing() as manifest:
        assert manifest == Manifest()
        with pytest.raises(StoreError, match="another run"), Store(tmp_path).writing():
            pass
        store.publish(Manifest(run=1))
    assert store.published() == Manifest(run=1)
    for text in ("{", "[]", '{"format": 2}', json.dumps({"format": 1, "nonsense": 1})):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(StoreError, match="manifest"):
            store.manifest()
