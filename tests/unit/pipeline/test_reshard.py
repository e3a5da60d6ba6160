"""Re-sharding: what each group has afterwards, what is refused, and that a run can be killed anywhere."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pipeline.logs import commit, raw_batch, record_bytes, segments

from muster_coordinator.records import consumer_group as c
from muster_coordinator.records import consumer_group_codec as codec
from muster_coordinator.records.batch import encode_batch, iter_batches
from muster_coordinator.records.control import EndTxnMarker, LeaderChange, encode_end_txn_marker, encode_leader_change
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.epoch_cache import EpochCache
from muster_coordinator.records.group_metadata import (
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.group_route import GroupRoute, encode_route
from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.decode.decoder import Decoder, decode_segment
from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.decode.schema import Kind
from muster_pipeline.reshard import job
from muster_pipeline.reshard.job import ReshardError, plan, reshard
from muster_pipeline.reshard.route import ABORTED, LEFT_OUT_KINDS, OPEN_TRANSACTION
from muster_pipeline.reshard.verify import VerificationError, verify
from muster_pipeline.source.files import InputError

Record = tuple[bytes, bytes | None]
Entry = tuple[int, bytes, bytes | None]  # timestamp, key, value
OLD = 4
GROUPS = [f"group-{number}" for number in range(12)] + ["gruppe-ä😀", ""]
FIRST = f"{0:020d}.log"
CARRIED = {
    *(Kind.OFFSET_COMMIT, Kind.OFFSET_TOMBSTONE, Kind.GROUP_METADATA, Kind.GROUP_TOMBSTONE),
    *(Kind.CONSUMER_GROUP, Kind.CONSUMER_GROUP_TOMBSTONE),
}


class Log:
    """One old log, written by hand: batches with any producer, some offsets missing as after a compaction."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.end = 0
        self.data = b""

    def add(self, records: list[Record], producer_id: int = -1, control: bool = False, time_ms: int = 0) -> None:
        self.data += encode_batch(
            records,
            base_offset=self.end,
            leader_epoch=self.end // 10,
            timestamp_ms=1_700_000_000_000 + time_ms,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
            control=control,
        )
        self.end += len(records) + 1

    def save(self) -> None:
        (self.path / FIRST).write_bytes(self.data)


def old_logs(root: Path) -> list[Log]:
    return [Log(root / f"__consumer_offsets-{number}") for number in range(OLD)]


def save(logs: list[Log]) -> None:
    for log in logs:
        log.save()


def group_record(group: str, generation: int) -> Record:
    value = GroupMetadataValue("consumer", generation, "range", "m", 7, ())
    return encode_group_metadata_key(group), encode_group_metadata_value(value)


def consumer_group_records(group: str, number: int) -> list[Record]:
    """One of each type, and a tombstone."""
    owned = (c.OwnedPartitions(bytes(16), (number % 7,), (number,)),)
    values: dict[int, c.ConsumerGroupValue] = {
        c.METADATA_TYPE: c.ConsumerGroupMetadataValue(number, number),
        c.MEMBER_TYPE: c.ConsumerGroupMemberValue(None, "r", "c", "/h", ("t",), "", 1, None),
        c.TARGET_METADATA_TYPE: c.ConsumerGroupTargetMetadataValue(number, 7),
        c.TARGET_MEMBER_TYPE: c.ConsumerGroupTargetMemberValue(((bytes(16), (number % 7,)),)),
        c.CURRENT_TYPE: c.ConsumerGroupCurrentValue(number, number, 0, owned, ()),
        c.REGEX_TYPE: c.ConsumerGroupRegexValue(("t",), 1, 2),
        c.CONFIGS_TYPE: c.GroupConfigsValue((("consumer.session.timeout.ms", number),)),
    }
    written: list[Record] = [
        (codec.encode_consumer_group_key(kind, group, "m"), codec.encode_consumer_group_value(value))
        for kind, value in values.items()
    ]
    return [*written, (codec.encode_consumer_group_key(c.PARTITION_METADATA_TYPE, group), None)]


def group_of(key: bytes) -> str:
    if int.from_bytes(key[:2], "big") in c.TYPES:
        return codec.decode_consumer_group_record(key, None).group_id
    return decode_record(key, None).group_id  # type: ignore[union-attr, return-value]


def contents(root: Path) -> tuple[dict[str, list[Entry]], dict[str, int]]:
    """(each group's records in order, its partition), by the coordinator's own reader; offsets must be dense."""
    found: dict[str, list[Entry]] = defaultdict(list)
    home: dict[str, int] = {}
    for directory in root.glob("__consumer_offsets-*"):
        number, end = int(directory.name.rpartition("-")[2]), 0
        for segment in sorted(directory.glob("*.log")):
            assert int(segment.stem) == end
            for batch in iter_batches(segment.read_bytes()):
                assert (batch.base_offset, batch.leader_epoch, batch.attributes) == (end, 0, 0)
                for record in batch.records():
                    assert record.offset == end
                    assert record.key is not None
                    end += 1
                    group = group_of(record.key)
                    found[group].append((record.timestamp_ms, record.key, record.value))
                    assert home.setdefault(group, number) == number
                assert batch.end_offset == end
        cache = EpochCache([(0, 0)] if end else [])
        assert (directory / "leader-epoch-checkpoint").read_text() == f"0\n{len(cache.entries)}\n" + "0 0\n" * bool(end)
    return dict(found), home


steps = st.lists(
    st.tuples(
        st.sampled_from(GROUPS),
        st.sampled_from(
            ["offset", "tombstone", "metadata", "group tombstone", "consumer group", "commit txn", "abort txn"]
        ),
        st.integers(0, 10**6),
        st.integers(1, 4),
    ),
    max_size=40,
)


def write(logs: list[Log], what: list[tuple[str, str, int, int]]) -> dict[str, list[Entry]]:
    """Write the steps; returns what must be there afterwards."""
    expected: dict[str, list[Entry]] = defaultdict(list)
    for group, kind, number, count in what:
        log = logs[partition_for(group, OLD)]
        records: list[Record] = {
            "tombstone": [(commit(group, "t", 1, 1)[0], None)],
            "metadata": [group_record(group, number)],
            "group tombstone": [(encode_group_metadata_key(group), None)],
            "consumer group": consumer_group_records(group, number),
        }.get(kind) or [commit(group, f"topic-{each}", each, number) for each in range(count)]
        in_transaction = "txn" in kind
        log.add(records, producer_id=number % 3 if in_transaction else -1, time_ms=number)
        if in_transaction:
            marker = encode_end_txn_marker(EndTxnMarker(kind == "commit txn", 0))
            log.add([marker], producer_id=number % 3, control=True)
        if kind != "abort txn":
            expected[group] += [(1_700_000_000_000 + number, *record) for record in records]
    return dict(expected)


@pytest.mark.long
@settings(max_examples=40)
@given(what=steps, partitions=st.integers(1, 9), segment_bytes=st.sampled_from([1, 300, 1 << 20]))
def test_every_group_has_the_same_records_in_the_partition_of_its_hash(
    tmp_path_factory: pytest.TempPathFactory, what: list[tuple[str, str, int, int]], partitions: int, segment_bytes: int
) -> None:
    root = tmp_path_factory.mktemp("reshard")
    logs = old_logs(root / "old")
    expected = write(logs, what)
    logs[0].add([encode_leader_change(LeaderChange("a", ("a",), ()))], control=True)
    save(logs)
    planned = plan([str(root / "old")], partitions)
    done = reshard([str(root / "old")], root / "new", partitions, segment_bytes=segment_bytes)
    found, home = contents(root / "new")
    assert found == expected
    assert home == {group: partition_for(group, partitions) for group in expected}
    assert done.verified
    assert done.groups == len(expected)
    assert (planned.records, planned.groups, planned.counts) == (done.records, done.groups, done.counts)
    back = reshard([str(root / "new")], root / "back", OLD)
    assert contents(root / "back")[0] == expected
    assert back.records == [
        sum(len(rows) for group, rows in expected.items() if partition_for(group, OLD) == number)
        for number in range(OLD)
    ]
    shutil.rmtree(root)


def some_logs(root: Path, rounds: int = 40) -> list[Log]:
    logs = old_logs(root)
    write(logs, [(group, "offset", number, 3) for number in range(rounds) for group in GROUPS])
    save(logs)
    return logs


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("where", ["_append", "_save"])
def test_killed_run_goes_on_and_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    some_logs(tmp_path / "old")
    monkeypatch.setattr(job, "CHECKPOINT_BYTES", 4000)
    monkeypatch.setattr(job, "DECODER", Decoder(window_bytes=1500))
    paths = [str(tmp_path / "old")]
    reshard(paths, tmp_path / "whole", 3, segment_bytes=3000)
    original = getattr(job._Job, where)
    kills = 0
    for survive in range(1, 200):
        left = [survive]

        def die(self: job._Job, *arguments: object, left: list[int] = left) -> None:
            original(self, *arguments)
            left[0] -= 1
            if not left[0]:
                raise _Killed

        monkeypatch.setattr(job._Job, where, die)
        try:
            reshard(paths, tmp_path / "killed", 3, segment_bytes=3000)
            break
        except _Killed:
            kills += 1
            assert not (tmp_path / "killed").exists()
    assert kills > 3
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    assert not (tmp_path / "killed.partial").exists()


def test_source_that_changed_since_the_interrupted_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = some_logs(tmp_path / "old", 3)

    def die(*_: object) -> None:
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(job._Job, "_append", die)
        with pytest.raises(_Killed):
            reshard([str(tmp_path / "old")], tmp_path / "new", 3)
    logs[0].add([commit("", "t", 0, 5)])
    save(logs)
    with pytest.raises(ReshardError, match="interrupted run with another source"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 3)


def damaged(log: Log) -> None:
    log.data = log.data[:-1]


def unknown(log: Log) -> None:
    log.add([(b"\0\x0b\0\x01g", b"x")])  # of a share group


def unreadable(log: Log) -> None:
    key, value = commit("g", "t", 0, 1)
    log.add([(key, b"\0\x63" + value[2:])])


def open_transaction(log: Log) -> None:
    log.add([commit("g", "t", 0, 1)], producer_id=4)


def test_routes_of_moved_groups_are_not_passed_over(tmp_path: Path) -> None:
    logs = some_logs(tmp_path / "old", 3)
    logs[1].add([encode_route(GroupRoute("g", 1, True))])
    save(logs)
    with pytest.raises(ReshardError, match="1 unknown"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 3)


@pytest.mark.parametrize("spoil", [damaged, unknown, unreadable, open_transaction])
def test_what_cannot_be_carried_is_refused_unless_it_may_be_left_out(tmp_path: Path, spoil: object) -> None:
    logs = some_logs(tmp_path / "old", 3)
    assert callable(spoil)
    spoil(logs[1])
    save(logs)
    kind = spoil.__name__
    with pytest.raises(ReshardError, match=f"1 {kind}"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 3)
    assert not (tmp_path / "new").exists()
    shutil.rmtree(tmp_path / "new.partial")
    assert reshard([str(tmp_path / "old")], tmp_path / "new", 3, leave_out=[kind]).counts[kind] == 1


def test_open_transactions_are_named(tmp_path: Path) -> None:
    logs = old_logs(tmp_path / "old")
    for group in ("b", "a"):
        logs[partition_for(group, OLD)].add([commit(group, "t", 0, 1)], producer_id=77)
    save(logs)
    with pytest.raises(ReshardError, match="2 open_transaction; producer 77 has a transaction open with"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 3)


def test_zeros_behind_the_last_batch_are_no_damage(tmp_path: Path) -> None:
    logs = some_logs(tmp_path / "old", 3)
    logs[0].data += bytes(500)
    save(logs)
    assert reshard([str(tmp_path / "old")], tmp_path / "new", 3).verified


def test_output_that_is_there_is_not_touched(tmp_path: Path) -> None:
    some_logs(tmp_path / "old", 1)
    (tmp_path / "new").mkdir()
    with pytest.raises(ReshardError, match="exists already"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 3)
    shutil.copytree(tmp_path / "old" / "__consumer_offsets-0", tmp_path / "log")
    with pytest.raises(InputError, match="no directory __consumer_offsets-N"):
        reshard([str(tmp_path / "log")], tmp_path / "other", 3)


@pytest.mark.parametrize("fault", ["lost record", "other partition", "other value", "hole", "epoch", "damage"])
def test_verification_finds_what_is_wrong(tmp_path: Path, fault: str) -> None:
    some_logs(tmp_path / "old", 5)
    paths = [str(tmp_path / "old")]
    reshard(paths, tmp_path / "new", 3)
    one, other = (tmp_path / "new" / f"__consumer_offsets-{number}" / FIRST for number in (0, 1))
    data = one.read_bytes()
    first = len(next(iter_batches(data)).data)
    if fault == "lost record":
        record = next(iter_batches(data)).records()[0]
        body = (record.key or b"", record.value)
        one.write_bytes(encode_batch([body], base_offset=0, leader_epoch=0, timestamp_ms=record.timestamp_ms))
    elif fault == "other partition":
        one.write_bytes(other.read_bytes())
    elif fault == "other value":
        records = [record for batch in iter_batches(data) for record in batch.records()]
        changed = [(each.key or b"", (each.value or b"")[:-1] + b"\1") for each in records]
        one.write_bytes(encode_batch(changed, base_offset=0, leader_epoch=0, timestamp_ms=1))
    elif fault == "hole":
        one.write_bytes((1).to_bytes(8, "big") + data[8:])
    elif fault == "epoch":
        one.write_bytes(data[:12] + (1).to_bytes(4, "big") + data[16:])
    else:
        one.write_bytes(data[: first - 1])
    source = job._Source.find(paths)
    with pytest.raises(VerificationError):
        verify(source.stretches(), tmp_path / "new", 3, source.total, None)


def test_large_records_and_many_of_them_fill_batches_and_segments(tmp_path: Path) -> None:
    logs = old_logs(tmp_path / "old")
    big = [commit("g", "t", number, 1, "x" * 4000) for number in range(3000)]
    logs[partition_for("g", OLD)].add(big)
    save(logs)
    reshard([str(tmp_path / "old")], tmp_path / "new", 1, segment_bytes=2 << 20)
    segments = sorted((tmp_path / "new" / "__consumer_offsets-0").glob("*.log"))
    assert len(segments) > 4
    sizes = [len(batch.data) for file in segments for batch in iter_batches(file.read_bytes())]
    assert max(sizes) < 600_000
    assert min(sizes[:-1]) > 400_000
    assert [value for _, _, value in contents(tmp_path / "new")[0]["g"]] == [value for _, value in big]


def test_timestamps_that_cannot_be_are_kept(tmp_path: Path) -> None:
    logs = old_logs(tmp_path / "old")
    body = record_bytes(*commit("g", "t", 0, 1), 0, delta_ms=-(2**62)) + record_bytes(*commit("g", "t", 0, 2), 1)
    logs[0].data = raw_batch(body, 2, base_ms=2**62)
    save(logs)
    assert reshard([str(tmp_path / "old")], tmp_path / "new", 2).verified
    assert [time for time, _, _ in contents(tmp_path / "new")[0]["g"]] == [0, 2**62]


@pytest.mark.long
@settings(max_examples=60)
@given(data=segments(), partitions=st.integers(1, 5))
def test_hostile_logs_are_refused_or_carried_over_as_far_as_they_can_be(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, partitions: int
) -> None:
    root = tmp_path_factory.mktemp("hostile")
    logs = old_logs(root / "old")
    logs[2].data = data
    save(logs)
    paths = [str(root / "old")]
    planned = plan(paths, partitions)
    refused = {kind: planned.counts[kind] for kind in LEFT_OUT_KINDS if planned.counts.get(kind)}
    if refused:
        with pytest.raises(ReshardError, match="cannot be carried over"):
            reshard(paths, root / "new", partitions)
        shutil.rmtree(root / "new.partial")
    done = reshard(paths, root / "new", partitions, leave_out=list(refused))
    assert (done.verified, done.counts, done.records) == (True, planned.counts, planned.records)
    rows = [row for row in decode_segment(data).to_pylist() if row["kind"] in CARRIED]
    assert sum(done.records) == len(rows) - planned.counts.get(ABORTED, 0) - refused.get(OPEN_TRANSACTION, 0)
    shutil.rmtree(root)


def test_file_that_vanishes_between_planning_and_reading_is_an_error_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = some_logs(tmp_path / "old", 3)
    find = job._Source.find

    def find_and_lose(paths: list[str], topic: str) -> job._Source:
        found = find(paths, topic)
        (logs[3].path / FIRST).unlink()
        return found

    monkeypatch.setattr(job._Source, "find", find_and_lose)
    with pytest.raises(SegmentReadError, match=r"__consumer_offsets-3/0{20}\.log, byte 0: No such file"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 3)
