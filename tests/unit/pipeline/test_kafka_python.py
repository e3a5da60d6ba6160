"""The same records as kafka-python's reader finds in the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from tests.unit.pipeline.logs import compress, raw_batch, record_bytes, right_records

from muster_pipeline.decode.bytes_source import MemoryBytes
from muster_pipeline.decode.decoder import Decoder
from muster_pipeline.decode.fast_rows import Origin

Record = tuple[int, int, bytes | None, bytes | None]


def by_kafka_python(data: bytes) -> list[Record]:
    """(offset, timestamp, key, value) of every record."""
    found: list[Record] = []
    reader = MemoryRecords(data)
    while (batch := reader.next_batch()) is not None:
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    return found


def by_numpy(data: bytes) -> list[Record]:
    found: list[Record] = []
    for stretch in Decoder().stretches(MemoryBytes(data), Origin("")):
        assert not stretch.damages
        records, buffer = stretch.window.records, stretch.window.source.data
        columns = (records.offset, records.timestamp_ms, records.key_start, records.key_end)
        values = zip(records.value_start.tolist(), records.value_end.tolist(), strict=True)
        for offset, time, start, end, (value_start, value_end) in zip(
            *(column.tolist() for column in columns), values, strict=True
        ):
            value = None if value_end < 0 else buffer[value_start:value_end]
            found.append((offset, time, None if end < 0 else buffer[start:end], value))
    return found


@st.composite
def right_segments(draw: st.DrawFn) -> bytes:
    parts, end = [], 0
    for _ in range(draw(st.integers(1, 60))):
        content = draw(st.lists(right_records, min_size=1, max_size=4))
        codec = draw(st.sampled_from([0, 0, 1]))  # gzip is what kafka-python reads without further packages
        deltas = [draw(st.sampled_from([0, 3, 70_000])) for _ in content]
        body = b"".join(
            record_bytes(key, value, index, delta)
            for index, ((key, value), delta) in enumerate(zip(content, deltas, strict=True))
        )
        attributes = codec | draw(st.sampled_from([0, 8]))
        parts.append(
            raw_batch(compress(codec, body) if codec else body, len(content), attributes=attributes, base_offset=end)
        )
        end += len(content)
    return b"".join(parts)


@pytest.mark.long
@settings(max_examples=60)
@given(right_segments())
def test_the_same_records_as_kafka_python(data: bytes) -> None:
    assert by_numpy(data) == by_kafka_python(data)
