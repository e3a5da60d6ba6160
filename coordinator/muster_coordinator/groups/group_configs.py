"""Configs that administrators set for one group, in place of the pod's settings (KIP-848; Kafka: GroupConfig).

They are a record in the group's partition, whether there is a group of that name or not, and stay when it is deleted
(ADR 46). Source: ConfigurationControlManager, ControllerConfigurationValidator, GroupConfig, ConfigHelper of 4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.consumer.config import OWN_CONFIGS, ConsumerGroupConfig, bounds_of, with_own_configs
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.tables import ConsumerTables, configs_record
from muster_coordinator.groups.effects import Effects
from muster_coordinator.requests.configs import (
    AlteredResource,
    AlterGroupConfigsRequest,
    AlterOperation,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribedConfig,
    DescribedResource,
    DescribeGroupConfigsRequest,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedResource,
)
from muster_coordinator.state_machine import Result, Token

_DOCUMENTATION = {
    "session_timeout_ms": "The timeout to detect client failures when using the consumer group protocol.",
    "heartbeat_interval_ms": "The heartbeat interval given to the members of a consumer group.",
    "assignment_interval_ms": "The interval between assignment updates for a consumer group.",
}
_SETTINGS = {each.name: each for each in fields(ConsumerGroupConfig)}
_LENGTH_MAX = 32_767  # of a value in a request; Kafka's Short.MAX_VALUE
_NUMBER = re.compile(r"[+-]?\d{1,4000}")  # `int` refuses a text of more than 4,300 digits
_INT32_MAX = 2**31 - 1


def alter_group_configs(state: GroupTables, request: AlterGroupConfigsRequest, token: Token, _now_ms: int) -> Result:
    """All of the changes, or none."""
    group_id, consumers = request.group_id, state.consumers
    before = consumers.own_configs.get(group_id, {})
    try:
        if not group_id:
            raise GroupError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        after = _changed(before, request, consumers)
        if not before and after and len(consumers.own_configs) >= state.config.max_groups:
            raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Too many groups have configs of their own.")
    except GroupError as error:
        if len(error.message or "") > _LENGTH_MAX:  # it quotes a value, and an answer has no room for it; as in Kafka
            return Result(response=_altered(group_id, int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        return Result(response=_altered(group_id, int(error.code), error.message))
    if request.validate_only or after == before:
        return Result(response=_altered(group_id))
    effects = Effects(token)
    effects.record(configs_record(group_id, after))
    return effects.answer(_altered(group_id))


def _altered(group_id: str, code: int = 0, message: str | None = None) -> AlteredResource:
    return AlteredResource(ConfigResourceType.GROUP, group_id, code, message)


def _changed(before: Mapping[str, int], request: AlterGroupConfigsRequest, consumers: ConsumerTables) -> dict[str, int]:
    """Raises GroupError."""
    texts = {} if request.replaces else {name: str(value) for name, value in before.items()}
    for change in request.changes:
        if change.operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            operation = AlterOperation(change.operation).name
            raise _invalid(f"Can't {operation} to key {change.name} because its type is not LIST.")
        if change.operation == AlterOperation.DELETE:
            texts.pop(change.name, None)
        elif change.operation != AlterOperation.SET or change.value is None:
            raise GroupError(ErrorCode.INVALID_REQUEST, f"{change.name}: there is no operation {change.operation}.")
        elif len(change.value) > _LENGTH_MAX:
            raise _invalid(
                "The configuration value cannot be added because it exceeds the maximum value size of"
                f" {_LENGTH_MAX} bytes."
            )
        else:
            texts[change.name] = change.value
    for name in texts:
        if name not in OWN_CONFIGS and name not in before:
            raise _invalid(f"Unknown group config name: {name}")
    after = dict(before) | {name: _number(name, texts[name]) for name in OWN_CONFIGS if name in texts}
    after = {name: value for name, value in after.items() if name in texts}
    _check_bounds(after, consumers)
    return after


def _number(name: str, text: str) -> int:
    """Raises GroupError."""
    stripped = text.strip()
    number = int(stripped) if _NUMBER.fullmatch(stripped) else None
    if number is None or not -_INT32_MAX - 1 <= number <= _INT32_MAX:
        raise _invalid(f"Invalid value {text} for configuration {name}: Not a number of type INT")
    minimum = _SETTINGS[OWN_CONFIGS[name]].metadata["minimum"]
    if number < minimum:
        raise _invalid(f"Invalid value {number} for configuration {name}: Value must be at least {minimum}")
    return number


_CHECKED = ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "consumer.assignment.interval.ms")
"""Kafka's order."""


def _check_bounds(own: Mapping[str, int], consumers: ConsumerTables) -> None:
    """Raises GroupError. Settings of the pod may be outside: it has not refused them when it started."""
    config = consumers.config
    for name in _CHECKED:
        setting = OWN_CONFIGS[name]
        least, greatest = bounds_of(config, setting)
        if consumers.follows_4_4 and not least <= own.get(name, least) <= greatest:
            raise _invalid(f"{name} must be in the range {least} to {greatest} inclusive.")
        if own.get(name, least) < least:
            raise _invalid(f"{name} must be greater than or equal to {_kafka_name(f'min_{setting}')}")
        if own.get(name, greatest) > greatest:
            raise _invalid(f"{name} must be less than or equal to {_kafka_name(f'max_{setting}')}")
    meant = with_own_configs(config, own)
    if own and meant.session_timeout_ms <= meant.heartbeat_interval_ms:
        raise _invalid("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")


def _invalid(message: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_CONFIG, message)


def _kafka_name(setting: str) -> str:
    return str(_SETTINGS[setting].metadata["kafka"])


# -- ListConfigResources ----------------------------------------------------------------------------------------------


def list_configured_groups(
    state: GroupTables, _request: ListConfigResourcesRequest, _token: Token, _now_ms: int
) -> Result:
    """Every group for which something is set, whether there is a group of that name or not."""
    listed = [ListedResource(ConfigResourceType.GROUP, group_id) for group_id in state.consumers.own_configs]
    return Result(response=ListConfigResourcesResponse(0, tuple(listed)))


# -- DescribeConfigs --------------------------------------------------------------------------------------------------


def describe_group_configs(
    state: GroupTables, request: DescribeGroupConfigsRequest, _token: Token, _now_ms: int
) -> Result:
    """Shows what was set, even if that is out of bounds by now."""
    group_id, consumers = request.group_id, state.consumers
    if not group_id:
        code, message = int(ErrorCode.INVALID_REQUEST), "Group name must not be empty"
        return Result(response=DescribedResource(ConfigResourceType.GROUP, group_id, code, message))
    own = consumers.own_configs.get(group_id, {})
    configs = [
        _described(request, name, own, consumers.config)
        for name in OWN_CONFIGS
        if not request.keys or name in request.keys
    ]
    return Result(response=DescribedResource(ConfigResourceType.GROUP, group_id, 0, "", tuple(configs)))


def _described(
    request: DescribeGroupConfigsRequest, name: str, own: Mapping[str, int], config: ConsumerGroupConfig
) -> DescribedConfig:
    setting = OWN_CONFIGS[name]
    broker_name, value, default = _kafka_name(setting), getattr(config, setting), _SETTINGS[setting].default
    synonyms = [ConfigSynonym(broker_name, str(default), ConfigSource.DEFAULT)]
    if value != default:
        synonyms.insert(0, ConfigSynonym(broker_name, str(value), ConfigSource.STATIC_BROKER))
    if name in own:
        synonyms.insert(0, ConfigSynonym(name, str(own[name]), ConfigSource.GROUP))
    return DescribedConfig(
        name,
        synonyms[0].value,
        synonyms[0].source,
        synonyms=tuple(synonyms) if request.include_synonyms else (),
        config_type=ConfigType.INT,
        documentation=_DOCUMENTATION[setting] if request.include_documentation else None,
    )
