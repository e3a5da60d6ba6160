"""The prefix of the consumer protocol that the coordinator reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.harness import subscription

from muster_coordinator.groups.subscription import subscribed_topics


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_topics_are_read_from_every_version(version: int) -> None:
    assert subscribed_topics(subscription(["a", "bö"], version) + b"what later versions add") == {"a", "bö"}


def test_bytes_that_end_early_are_not_known() -> None:
    whole = subscription(["topic"])
    for size in (0, 1, 5, len(whole) - 1):
        assert subscribed_topics(whole[:size]) is None


@pytest.mark.parametrize(
    "metadata",
    [
        b"\x00\x00\xff\xff\xff\xff",  # null array
        b"\x00\x00\x7f\xff\xff\xff",  # more topics than bytes
        b"\x00\x00\x00\x00\x00\x01\xff\xff",  # null topic
        b"\x00\x00\x00\x00\x00\x01\x00\x09abc",  # topic behind the end
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09ab",  # user data behind the end
    ],
    ids=["null array", "array too long", "null topic", "topic too long", "user data too long"],
)
def test_null_or_overlong_lengths_are_not_known(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


@given(st.binary(max_size=64))
def test_any_bytes_give_topics_or_nothing(metadata: bytes) -> None:
    found = subscribed_topics(metadata)
    assert found is None or all(topic.encode() for topic in found - {""})
