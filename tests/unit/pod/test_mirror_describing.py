"""A broker is asked what a group is as the kind that it is there, and what is set for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.describing import configs_of, describe
from muster_coordinator.requests import configs as f
from muster_coordinator.requests.cluster import DescribeGroupsResponse
from muster_coordinator.requests.consumer_groups import ConsumerGroupDescribeResponse, DescribedConsumerGroup
from muster_coordinator.requests.groups import DescribedGroup
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.codec import Reader

GROUP = "orders"
CLASSIC = DescribedGroup(GROUP, ErrorCode.NONE, None, "Stable", "consumer", "range")
DEAD = DescribedGroup(GROUP, ErrorCode.NONE, group_state="Dead")
CONSUMERS = DescribedConsumerGroup(GROUP, 0, None, "Stable", 3, 3, "uniform")
UNKNOWN = DescribedConsumerGroup(GROUP, int(ErrorCode.GROUP_ID_NOT_FOUND))
UNREADABLE = DescribedGroup(GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Broker:
    """Implements as much of `UpstreamConnection` as is asked. `answers`: by API key."""

    def __init__(self, **answers: Any) -> None:
        self._answers = {15: answers.get("classic"), 69: answers.get("consumers"), 32: answers.get("configs")}
        self.asked: list[int] = []

    def serves(self, api: Api, version: int) -> bool:
        return self._answers[api.key] is not None

    async def ask(self, api: Api, version: int, body: bytes, decode: Callable[[Reader], Any]) -> Any:
        self.asked.append(api.key)
        encoded = api.encode_response(version, self._answers[api.key])
        return decode(Reader(encoded, 0, api.flexible(version)))


def broker(classic: DescribedGroup, consumers: DescribedConsumerGroup | None = None) -> Broker:
    return Broker(
        classic=DescribeGroupsResponse((classic,)),
        consumers=None if consumers is None else ConsumerGroupDescribeResponse((consumers,)),
    )


@pytest.mark.parametrize(
    ("classic", "consumers", "kind", "asked"),
    [
        (CLASSIC, UNKNOWN, DescribedGroup, [15]),
        (DEAD, CONSUMERS, DescribedConsumerGroup, [15, 69]),
        (DEAD, UNKNOWN, DescribedGroup, [15, 69]),
        (DEAD, None, DescribedGroup, [15]),  # a broker before 4.0
        (UNREADABLE, CONSUMERS, DescribedGroup, [15]),
    ],
)
def test_kind_is_that_of_the_broker(
    classic: DescribedGroup, consumers: DescribedConsumerGroup | None, kind: type, asked: list[int]
) -> None:
    there = broker(classic, consumers)
    found = asyncio.run(describe(there, GROUP))  # type: ignore[arg-type]
    assert (type(found), there.asked) == (kind, asked)
    assert found.group_state == ("Stable" if kind is DescribedConsumerGroup else classic.group_state)


def test_answer_about_another_group_is_none() -> None:
    with pytest.raises(UpstreamError, match="another group"):
        asyncio.run(describe(broker(DEAD, CONSUMERS), "other"))  # type: ignore[arg-type]


def configured(code: int = 0, name: str = GROUP) -> Broker:
    configs = (
        f.DescribedConfig("consumer.session.timeout.ms", "50000", f.ConfigSource.GROUP),
        f.DescribedConfig("consumer.heartbeat.interval.ms", "5000", f.ConfigSource.DEFAULT),
        f.DescribedConfig("share.session.timeout.ms", "50000", f.ConfigSource.GROUP),
    )
    result = f.DescribedResource(f.ConfigResourceType.GROUP, name, code, None, () if code else configs)
    return Broker(configs=f.DescribeConfigsResponse((result,)))


def test_configs_are_those_that_were_set_for_the_group() -> None:
    assert asyncio.run(configs_of(configured(), GROUP)) == {"consumer.session.timeout.ms": 50_000}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (configured(int(ErrorCode.GROUP_AUTHORIZATION_FAILED)), "GROUP_AUTHORIZATION_FAILED.*DESCRIBE_CONFIGS"),
        (configured(name="other"), "other configs"),
    ],
)
def test_configs_that_may_not_be_seen_are_a_doubt(there: Broker, said: str) -> None:
    with pytest.raises(UpstreamError, match=said):
        asyncio.run(configs_of(there, GROUP))  # type: ignore[arg-type]
