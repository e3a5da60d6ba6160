"""Logs of the transaction topic: their rows, and the transactional ids that are there at a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.golden.records.test_kafka_transactions import GOLDEN
from tests.unit.pipeline.logs import KeyValue, commits_segment, mangled, raw_batch, record_bytes
from tests.unit.transactions.harness import PARTITION, Harness, MarkerWriter, Topics, replay

from muster_coordinator.records.batch import encode_batch, iter_batches
from muster_coordinator.records.control import LeaderChange, encode_leader_change
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.records.structs import UnknownRecord
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
)
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator
from muster_pipeline.decode.decoder import Selection, decode_segment
from muster_pipeline.decode.schema import Kind
from muster_pipeline.reshard.job import ReshardError, plan, reshard
from muster_pipeline.source.files import InputError, find_segments
from muster_pipeline.source.topics import BOTH_TOPICS, TRANSACTIONS_FIRST, TRANSACTIONS_TOPIC
from muster_pipeline.tables.local import local_offsets, local_quality, local_transactions

Row = dict[str, Any]
START_MS = 1_700_000_000_000
FIRST = f"{0:020d}.log"
STATES = [name for name in GOLDEN if name.startswith(("v0.", "v2.", "exhausted.", "rotated."))]
keys = st.builds(encode_transaction_key, st.sampled_from(["", "a", "tx-ä"]))
values = st.sampled_from([GOLDEN[name] for name in STATES] + [GOLDEN["value-0"], GOLDEN["producer-ids"]])
records = (
    st.tuples(keys, values | st.none())
    | st.tuples(mangled(keys), mangled(values))
    | st.tuples(st.none() | st.binary(max_size=6), st.none() | values)
    | st.tuples(st.just(b"\0\1\0\1g"), st.none() | values)
)


def segment(*records: KeyValue, base_offset: int = 0, time_ms: int = 0) -> bytes:
    """A batch for each record, a second apart."""
    return b"".join(
        raw_batch(
            record_bytes(*record, 0), 1, base_offset=base_offset + number, base_ms=START_MS + time_ms + 1000 * number
        )
        for number, record in enumerate(records)
    )


def write(root: Path, data: bytes, partition: int = 0) -> str:
    directory = root / f"{TRANSACTIONS_TOPIC}-{partition}"
    directory.mkdir(parents=True)
    (directory / FIRST).write_bytes(data)
    return str(root)


def of_harness(harness: Harness) -> bytes:
    batches = [
        encode_batch([(each.key, each.value)], base_offset=each.offset, leader_epoch=2, timestamp_ms=each.timestamp_ms)
        for each in harness.log
    ]
    return b"".join(batches)


def test_state_that_kafka_wrote_has_every_column() -> None:
    key = encode_transaction_key("tx-ä")
    [row] = decode_segment(segment((key, GOLDEN["value-1"])), transaction_partition=7).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "file": "",
        "transaction_partition": 7,
        "position": 0,
        "offset": 0,
        "leader_epoch": 0,
        "timestamp_ms": START_MS,
        "kind": Kind.TRANSACTION_STATE,
        "record_type": 0,
        "value_version": 1,
        "producer_id": 9,
        "producer_epoch": 3,
        "transactional_id": "tx-ä",
        "transaction_state": "Ongoing",
        "transaction_partitions": [
            {"topic": "t-ü", "partition": 0},
            {"topic": "t-ü", "partition": 7},
            {"topic": "__consumer_offsets", "partition": 200},
        ],
        "transaction_timeout_ms": 60_000,
        "transaction_start_ms": START_MS,
        "transaction_update_ms": START_MS + 1,
        "transaction_version": 2,
    }


@given(records=st.lists(records, max_size=12), kinds=st.none() | st.sets(st.sampled_from(sorted({"unknown"}))))
def test_rows_are_what_the_coordinator_reads(records: list[KeyValue], kinds: set[str] | None) -> None:
    data = segment(*records) + encode_batch(
        [encode_leader_change(LeaderChange("a", ("a",), ()))],
        base_offset=len(records),
        leader_epoch=0,
        timestamp_ms=START_MS,
        control=True,
    )
    rows = decode_segment(data, transaction_partition=1).to_pylist()
    assert [_plain(row) for row in rows] == [*(_expected(*record) for record in records), (Kind.CONTROL, None, None)]
    assert {row["transaction_partition"] for row in rows} == {1}
    if kinds is not None:
        selected = decode_segment(data, transaction_partition=1, selection=Selection(kinds=frozenset(kinds)))
        assert selected.to_pylist() == [row for row in rows if row["kind"] in kinds]


def _plain(row: Row) -> tuple[str, str | None, int | None]:
    return row["kind"], row["transactional_id"], row["transaction_update_ms"]


def _expected(key: bytes | None, value: bytes | None) -> tuple[str, str | None, int | None]:
    try:
        record = decode_transaction_record(key, value)
    except (RecordDecodeError, UnsupportedValueVersionError):
        return Kind.UNREADABLE, None, None
    if isinstance(record, UnknownRecord):
        return Kind.UNKNOWN, None, None
    name = record.transactional_id
    if record.value is None:
        return Kind.TRANSACTION_TOMBSTONE, name, None
    return (Kind.TRANSACTION_STATE, name, record.value.last_update_ms) if name else (Kind.PRODUCER_IDS, name, None)


def test_ids_are_those_of_the_state_machine_now_and_after_every_record(tmp_path: Path) -> None:
    harness = Harness()
    first, second = harness.producer("a"), harness.producer("b")
    harness.advance(1000)
    harness.add(first, 1, 3, transactional_id="a")
    harness.advance(1000)
    harness.add(second, 2, transactional_id="b", version=5)
    harness.end(first, transactional_id="a")
    harness.finish()
    harness.advance(harness.config.id_expiration_ms + harness.config.expiry_interval_ms)
    place = write(tmp_path, of_harness(harness), PARTITION)
    found = local_transactions([place]).to_pylist()
    assert _states(found) == _expected_states(harness.coordinator)
    assert {row["transaction_partition"] for row in found} == {PARTITION}
    moments = sorted({entry.timestamp_ms for entry in harness.log})
    assert len(moments) > 3
    for at_ms in moments:
        replica = harness.new()
        replay(replica, [entry for entry in harness.log if entry.timestamp_ms <= at_ms])
        assert _states(local_transactions([place], at_ms).to_pylist()) == _expected_states(replica)
    assert local_transactions([place], START_MS - 1).num_rows == 0


def _expected_states(coordinator: TransactionCoordinator) -> dict[str, TransactionLogValue]:
    """The pipeline has no columns for the producer ids before and after."""
    return {
        name: replace(value, previous_producer_id=-1, next_producer_id=-1)
        for name, (_, value) in coordinator.durable_state().ids.items()
    }


def _states(rows: list[Row]) -> dict[str, Any]:
    found = {}
    for row in rows:
        topics: dict[str, list[int]] = {}
        for each in row["transaction_partitions"]:
            topics.setdefault(each["topic"], []).append(each["partition"])
        found[row["transactional_id"]] = TransactionLogValue(
            row["producer_id"],
            row["producer_epoch"],
            row["transaction_timeout_ms"],
            next(each for each in TransactionStatus if each.name.title().replace("_", "") == row["transaction_state"]),
            tuple((topic, tuple(partitions)) for topic, partitions in topics.items()),
            row["transaction_update_ms"],
            row["transaction_start_ms"],
            client_version=row["transaction_version"],
        )
    return found


def test_topics_of_one_directory_are_told_apart(tmp_path: Path) -> None:
    """Key 0 is a transactional id in one topic, and an old form of a committed offset in the other."""
    key = encode_transaction_key("a")
    place = write(tmp_path, segment((key, GOLDEN["v0.add"])))
    offsets = tmp_path / "__consumer_offsets-0"
    offsets.mkdir()
    (offsets / FIRST).write_bytes(commits_segment(3, 1))
    assert [each.path for each in find_segments([place])] == [str(offsets / FIRST)]
    assert [each.number for each in find_segments([place], BOTH_TOPICS)] == [0, TRANSACTIONS_FIRST]
    assert local_offsets([place]).num_rows == 3
    assert local_transactions([place])["transactional_id"].to_pylist() == ["a"]
    assert local_quality([place]).num_rows == 0
    with pytest.raises(InputError, match="no segments of __consumer_offsets under"):
        local_offsets([f"{place}/{TRANSACTIONS_TOPIC}-0"])


def test_id_that_expired_is_away_and_one_that_came_back_is_there(tmp_path: Path) -> None:
    gone, back = encode_transaction_key("gone"), encode_transaction_key("back")
    place = write(
        tmp_path,
        segment(
            (gone, GOLDEN["v0.init"]), (back, GOLDEN["v0.init"]), (gone, None), (back, None), (back, GOLDEN["v0.add"])
        ),
    )
    assert {r["transactional_id"]: r["transaction_state"] for r in local_transactions([place]).to_pylist()} == {
        "back": "Ongoing"
    }
    assert local_transactions([place], START_MS + 2500)["transactional_id"].to_pylist() == ["back"]


def test_record_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    key = encode_transaction_key("a")
    data = segment((key, b"\0\x09" + GOLDEN["v0.init"][2:]), (key, GOLDEN["v0.init"][:20]))
    found = local_quality([write(tmp_path, data)]).to_pylist()
    assert [row["problem"] for row in found] == ["unsupported_version", "bad_record"]
    assert {row["file"] for row in found} == {str(tmp_path / f"{TRANSACTIONS_TOPIC}-0" / FIRST)}


def test_offsets_are_not_resharded_beside_open_transactions(tmp_path: Path) -> None:
    offsets = tmp_path / "old" / "__consumer_offsets-0"
    offsets.mkdir(parents=True)
    (offsets / FIRST).write_bytes(commits_segment(3, 1))
    key = encode_transaction_key("a")
    states = [(key, GOLDEN[name]) for name in ("v0.init", "v0.add", "v0.commit")]
    place = write(tmp_path / "old", segment(*states))
    for run in (lambda: plan([place], 2), lambda: reshard([place], tmp_path / "new", 2)):
        with pytest.raises(InputError, match="'a' in __transaction_state: open transactions"):
            run()
    assert plan([str(offsets)], 2).groups == 3
    (tmp_path / "old" / f"{TRANSACTIONS_TOPIC}-0" / FIRST).write_bytes(segment(*states, (key, GOLDEN["v0.committed"])))
    assert reshard([place], tmp_path / "new", 2).groups == 3
    assert sorted(each.name for each in (tmp_path / "new").glob("__*")) == [
        "__consumer_offsets-0",
        "__consumer_offsets-1",
    ]


def test_transaction_topic_alone_is_not_resharded_where_its_partitions_keep_their_indexes(tmp_path: Path) -> None:
    place = write(tmp_path, segment((encode_transaction_key("a"), GOLDEN["v0.init"])))
    with pytest.raises(InputError, match="only logs of __transaction_state, which cannot be re-sharded"):
        reshard([place], tmp_path / "new", 2)


def log_of(directory: Path) -> list[tuple[int, bytes, bytes | None]]:
    """(timestamp, key, value) of all records, by the coordinator's own reader."""
    data = b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))
    return [(r.timestamp_ms, r.key or b"", r.value) for batch in iter_batches(data) for r in batch.records()]


def loaded(directory: Path, partition: int) -> TransactionCoordinator:
    """A new partition that has taken the log in."""
    coordinator = TransactionCoordinator(TransactionConfig(), partition, Topics(), MarkerWriter())
    for offset, (time_ms, key, value) in enumerate(log_of(directory)):
        change = decode_transaction_record(key, value)
        assert isinstance(change, TransactionRecord)
        coordinator.replay(change, offset, time_ms)
    return coordinator


def test_every_transactional_id_has_its_state_in_the_partition_of_its_hash(tmp_path: Path) -> None:
    """Open transactions, decisions whose markers are missing, ids at rest and expired ones; and back again."""
    names = [f"tx-{number}" for number in range(20)] + ["ä😀"]
    harness = Harness()
    for number, name in enumerate(names):
        producer = harness.producer(name)
        harness.add(producer, number % 5, transactional_id=name)
        if number % 4 == 1:
            harness.end(producer, True, transactional_id=name)
        elif number % 4 == 2:
            harness.end(producer, False, transactional_id=name)
            harness.finish()
    write(tmp_path / "old", of_harness(harness), partition=4)
    gone = encode_transaction_key("gone")
    tombstones = segment((gone, GOLDEN["v2.add"]), (gone, None), (encode_transaction_key(""), None))
    write(tmp_path / "old", tombstones, partition=0)
    before = harness.coordinator.durable_state().ids
    source = tmp_path / "old"
    for partitions, base in ((3, 5), (5, 8)):
        output = tmp_path / f"new-{partitions}"
        summary = reshard([str(source)], output, partitions, topic=TRANSACTIONS_TOPIC)
        assert (summary.groups, summary.topic, summary.verified) == (len(names) + 1, TRANSACTIONS_TOPIC, True)
        found: dict[str, TransactionLogValue] = {}
        for number in range(partitions):
            coordinator = loaded(output / f"{TRANSACTIONS_TOPIC}-{number}", base + number)
            state = coordinator.durable_state()
            assert all(partition_for(name, partitions) == number for name in state.ids)
            assert state.reserved_to == (base + number + 1) << 40, "its range is as if it were new"
            found |= {name: value for name, (_, value) in state.ids.items()}
        assert found == {name: value for name, (_, value) in before.items()}
        source = output


def test_history_of_an_id_keeps_its_order_bytes_and_times(tmp_path: Path) -> None:
    harness = Harness()
    for round_ in range(3):
        for name in ("a", "b", "c"):
            producer = harness.producer(name)
            harness.add(producer, round_, transactional_id=name)
            harness.end(producer, round_ == 1, transactional_id=name)
            harness.finish()
            harness.advance(1000)
    write(tmp_path / "old", of_harness(harness), partition=1)
    reshard([str(tmp_path / "old")], tmp_path / "new", 4, topic=TRANSACTIONS_TOPIC, segment_bytes=300)
    new = [record for number in range(4) for record in log_of(tmp_path / "new" / f"{TRANSACTIONS_TOPIC}-{number}")]
    for name in ("a", "b", "c"):
        key = encode_transaction_key(name)
        wanted = [(each.timestamp_ms, each.key, each.value) for each in harness.log if each.key == key]
        assert [each for each in new if each[1] == key] == wanted
    assert len(new) == sum(each.key != encode_transaction_key("") for each in harness.log)


@pytest.mark.parametrize("record", [(b"\0\7\0\1g", b""), (encode_transaction_key("a"), b"\0\x63")])
def test_what_cannot_be_carried_is_refused(tmp_path: Path, record: KeyValue) -> None:
    write(tmp_path / "old", segment(record))
    with pytest.raises(ReshardError, match="1 un"):
        reshard([str(tmp_path / "old")], tmp_path / "new", 2, topic=TRANSACTIONS_TOPIC)
