"""What is written back is what Kafka does not have, in requests that are not too large."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.mirror.write_back import in_parts, to_write
from muster_coordinator.requests.groups import OffsetFetchResponse

_OFFSETS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4)),
    st.tuples(st.integers(0, 3), st.integers(-1, 1), st.sampled_from(["", "m"])),
)


def _response(offsets: dict[Any, Any]) -> OffsetFetchResponse:
    topics = sorted({topic for topic, _ in offsets})
    return OffsetFetchResponse(
        "g",
        0,
        tuple(
            (topic, tuple((place[1], *value, 0) for place, value in offsets.items() if place[0] == topic))
            for topic in topics
        ),
    )


@given(here=_OFFSETS, there=_OFFSETS, size=st.integers(1, 20))
def test_kafka_has_all_afterwards_and_nothing_is_written_for_nothing(
    here: dict[Any, Any], there: dict[Any, Any], size: int
) -> None:
    parts = list(in_parts(to_write(_response(here), _response(there)), size))
    counts = [sum(len(partitions) for _, partitions in part) for part in parts]
    assert all(counts), "no empty requests"
    assert all(count == size for count in counts[:-1])
    assert all(count <= size for count in counts)
    written = [((topic, each[0]), each[1:]) for part in parts for topic, partitions in part for each in partitions]
    assert dict(written) == {place: value for place, value in here.items() if there.get(place) != value}
    assert len(written) == len(dict(written))
