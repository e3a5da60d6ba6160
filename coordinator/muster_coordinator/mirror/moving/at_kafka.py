"""Kafka's answers about a group that moves. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster_coordinator.requests.consumer_groups import DescribedConsumerGroup
from muster_coordinator.requests.groups import DescribedGroup, OffsetFetchResponse


@dataclass(frozen=True)
class GroupAtKafka:
    """`described`: as the kind of group that it is there. `configs`: what administrators have set there for a group of
    consumers."""

    described: DescribedGroup | DescribedConsumerGroup
    fetched: OffsetFetchResponse
    configs: Mapping[str, int] = field(default_factory=dict)

    @property
    def describing(self) -> str:
        """The API by which it was described."""
        return describing(self.described)


def describing(described: DescribedGroup | DescribedConsumerGroup) -> str:
    return "ConsumerGroupDescribe" if isinstance(described, DescribedConsumerGroup) else "DescribeGroups"
