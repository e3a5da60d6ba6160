"""The questions to a broker what a group is, whichever kind it is there, and what is set for it."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.consumer.config import OWN_CONFIGS
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.requests.configs import (
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
)
from muster_coordinator.requests.consumer_groups import DescribedConsumerGroup
from muster_coordinator.requests.groups import DescribedGroup
from muster_coordinator.wire import k15_describe_groups, k32_describe_configs, k69_consumer_group_describe


async def describe(connection: UpstreamConnection, group_id: str) -> DescribedGroup | DescribedConsumerGroup:
    """The broker's answer, errors included. One that does not know it as a classic group says that it is Dead, and is
    asked for a group of consumers then. Raises UpstreamError."""
    classic = await connection.ask(
        k15_describe_groups.API,
        k15_describe_groups.MIRROR_VERSION,
        k15_describe_groups.encode_request(group_id),
        k15_describe_groups.decode_response,
    )
    _check_group(group_id, [each.group_id for each in classic])
    api, version = k69_consumer_group_describe.API, k69_consumer_group_describe.MIRROR_VERSION
    is_classic = classic[0].error_code or classic[0].group_state != GroupState.DEAD.value
    if is_classic or not connection.serves(api, version):
        return classic[0]
    body = k69_consumer_group_describe.encode_request(group_id)
    consumers = await connection.ask(api, version, body, k69_consumer_group_describe.decode_response)
    _check_group(group_id, [each.group_id for each in consumers])
    return classic[0] if consumers[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND else consumers[0]


def _check_group(group_id: str, described: list[str]) -> None:
    if described != [group_id]:
        raise UpstreamError("the broker describes another group than it was asked for")


async def configs_of(connection: UpstreamConnection, group_id: str) -> dict[str, int]:
    """The configs that administrators have set at Kafka for the group, if they mean something here. Raises
    UpstreamError."""
    version = k32_describe_configs.MIRROR_VERSION
    asked = DescribeConfigsRequest((ConfigResource(ConfigResourceType.GROUP, group_id, tuple(OWN_CONFIGS)),))
    body = k32_describe_configs.encode_request(version, asked)
    answer = await connection.ask(k32_describe_configs.API, version, body, k32_describe_configs.decode_response)
    if [each.name for each in answer.results] != [group_id]:
        raise UpstreamError("the broker describes other configs than it was asked for")
    (found,) = answer.results
    if found.error_code:
        name = ErrorCode(found.error_code).name if found.error_code in set(ErrorCode) else f"code {found.error_code}"
        raise UpstreamError(
            f"a broker answers DescribeConfigs of the group with {name}: the account of the mirror needs"
            " DESCRIBE_CONFIGS on it"
        )
    own = {each.name: each.value for each in found.configs if each.source == ConfigSource.GROUP}
    return {name: int(own[name] or 0) for name in OWN_CONFIGS if name in own}
