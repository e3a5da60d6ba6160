"""The harness of classic groups with groups of the consumer protocol beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.groups.consumer.consumer_harness import Resolving, Topics, request
from tests.unit.groups.harness import Harness, Pending

from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m


class PendingResolving(Resolving):
    def attempt(self, request: c.RegexesToResolve) -> Any:
        return Pending(request)


CONFIG = ConsumerGroupConfig(assignment_interval_ms=0)


@dataclass
class TwoKinds(Harness):
    """`consumer_config`: of coordinators that are made from now on."""

    consumer_config: ConsumerGroupConfig = CONFIG

    def _new(self) -> GroupCoordinator:
        if not hasattr(self, "consumer_topics"):
            self.consumer_topics = Topics(t=2)
        tables = ConsumerTables(
            self.consumer_config, self.consumer_topics, PendingResolving(), lambda: f"made-{next(self._suffix)}"
        )
        return GroupCoordinator(self.config, self.topics, lambda: f"{next(self._suffix):03}", consumers=tables)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> c.ConsumerGroupHeartbeatResponse:
        response = self.send(request(member_id, epoch, **fields)).response
        assert isinstance(response, c.ConsumerGroupHeartbeatResponse)
        assert self.restored().durable_state() == self.coordinator.durable_state()
        return response

    def join_consumer(self, member_id: str = "a", **fields: Any) -> c.ConsumerGroupHeartbeatResponse:
        values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
        return self.beat(member_id, 0, **{**values, **fields})

    def listed(self, **filters: Any) -> list[tuple[str, str, str, str]]:
        response = self.send(m.ListGroupsRequest(**filters)).response
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]

    def described(self) -> c.DescribedConsumerGroup:
        response = self.send(c.DescribeConsumerGroupRequest("g")).response
        assert isinstance(response, c.DescribedConsumerGroup)
        return response

    def fetched(self, member_id: str | None, epoch: int) -> tuple[int, int]:
        """(error code of the group, offset or -1)"""
        response = self.send(m.OffsetFetchRequest("g", member_id, epoch, (("t", (0,)),), False)).response
        return response.error_code, response.topics[0][1][0][1] if response.topics else -1
