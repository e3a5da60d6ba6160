"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources of groups."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from tests.conformance.registry import script
from tests.conformance.session import Session

SETTINGS = {"group.consumer.assignment.interval.ms": "500"}
GROUP, TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 32, 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
KEYS = (SESSION, HEARTBEAT, ASSIGNMENT)
PROPAGATION_S = 10.0
"""Kafka's controller tells its brokers afterwards."""


def change(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "config_operation": operation, "value": value}


def resource(name: str, *changes: dict[str, Any], kind: int = GROUP) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": changes}


async def alter(s: Session, *changes: dict[str, Any], version: int = 1, validate_only: bool = False) -> None:
    resources = (resource(s.group, *changes),)
    await s.ask("incremental_alter_configs", version, resources=resources, validate_only=validate_only)


def asked(name: str, keys: tuple[str, ...] | None = KEYS, kind: int = GROUP) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


async def show(s: Session, version: int = 4, **fields: Any) -> None:
    resources = (asked(s.group),)
    await s.ask("describe_configs", version, resources=resources, include_synonyms=True, **fields)


async def until(s: Session, name: str, value: str) -> None:
    """Return when the server shows it."""
    async with asyncio.timeout(PROPAGATION_S):
        while True:
            answer = await s.quietly("describe_configs", 4, resources=(asked(s.group, (name,)),))
            if [each.value for each in answer.results[0].configs] == [value]:
                return
            await asyncio.sleep(0.05)


@script(versions=(1, 2, 3, 4))
async def configs_of_a_group_without_any(s: Session, version: int) -> None:
    await show(s, version)
    await show(s, version, include_documentation=True)
    await s.ask("describe_configs", version, resources=(asked(s.group, (SESSION, "nonsense")),))


@script(versions=(0, 1))
async def configs_of_a_group_are_set_and_taken_away(s: Session, version: int) -> None:
    await alter(s, change(SESSION, "50000"), change(HEARTBEAT, " 6000 "), version=version)
    await until(s, HEARTBEAT, "6000")
    await show(s)
    await alter(s, change(ASSIGNMENT, "0"), change(HEARTBEAT, None, DELETE), version=version)
    await until(s, HEARTBEAT, "5000")
    await show(s)
    await alter(s, *(change(name, None, DELETE) for name in KEYS), version=version)
    await until(s, SESSION, "45000")
    await show(s)


@script()
async def change_that_is_only_validated(s: Session) -> None:
    await alter(s, change(SESSION, "50000"), validate_only=True)
    await alter(s, change(SESSION, "1"), validate_only=True)
    await show(s)


WRONG: dict[str, tuple[dict[str, Any], ...]] = {
    "unknown_name": (change("nonsense", "1"),),
    "no_number": (change(SESSION, "abc"),),
    "empty_value": (change(SESSION, ""),),
    "fraction": (change(HEARTBEAT, "1.5"),),
    "large_number": (change(HEARTBEAT, "99999999999"),),
    "plus": (change(SESSION, "+50000"),),
    "zero_session": (change(SESSION, "0"),),
    "zero_heartbeat": (change(HEARTBEAT, "0"),),
    "negative_assignment": (change(ASSIGNMENT, "-1"),),
    "short_session": (change(SESSION, "44999"),),
    "long_session": (change(SESSION, "60001"),),
    "short_heartbeat": (change(HEARTBEAT, "4999"),),
    "long_heartbeat": (change(HEARTBEAT, "15001"),),
    "long_assignment": (change(ASSIGNMENT, "15001"),),
    "bounds": (change(SESSION, "60000"), change(HEARTBEAT, "15000"), change(ASSIGNMENT, "15000")),
    "one_of_two": (change(SESSION, "50000"), change(HEARTBEAT, "1")),
    "null": (change(SESSION, None),),
    "two_nulls": (change(SESSION, None), change(HEARTBEAT, None)),
    "twice": (change(SESSION, "50000"), change(SESSION, "50001")),
    "append": (change(SESSION, "1", APPEND),),
    "subtract": (change(SESSION, "1", SUBTRACT),),
    "append_to_unknown": (change("nonsense", "1", APPEND),),
    "delete_unknown": (change("nonsense", None, DELETE),),
    "nothing": (),
    "long_value": (change(SESSION, "1" * 32767),),
    "long_text": (change(SESSION, "x" * 32767),),
    "many_digits": (change(SESSION, "1" * 5000),),
}


@script(cases=WRONG)
async def group_config(s: Session, changes: tuple[dict[str, Any], ...]) -> None:
    await alter(s, *changes, validate_only=True)


async def replace(s: Session, *configs: dict[str, Any], version: int = 2, validate_only: bool = False) -> None:
    """AlterConfigs: what is not named is taken away."""
    resources = (replaced(s.group, *configs),)
    await s.ask("alter_configs", version, resources=resources, validate_only=validate_only)


def replaced(name: str, *configs: dict[str, Any], kind: int = GROUP) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def config(name: str, value: str | None) -> dict[str, Any]:
    return {"name": name, "value": value}


@script(versions=(0, 1, 2))
async def configs_of_a_group_are_replaced(s: Session, version: int) -> None:
    await replace(s, config(SESSION, "50000"), config(HEARTBEAT, " 6000 "), version=version)
    await until(s, HEARTBEAT, "6000")
    await show(s)
    await replace(s, config(ASSIGNMENT, "0"), config(SESSION, "50000"), version=version)
    await until(s, HEARTBEAT, "5000")
    await show(s)
    await alter(s, change(HEARTBEAT, "7000"))
    await until(s, HEARTBEAT, "7000")
    await replace(s, config(SESSION, "51000"), version=version, validate_only=True)
    await replace(s, config(SESSION, "1"), version=version)
    await show(s)
    await replace(s, version=version)
    await until(s, SESSION, "45000")
    await show(s)
    await s.ask("list_config_resources", 1, resource_types=(GROUP,))
    await replace(s, version=version)


@script()
async def replaced_configs_are_not_held_against_those_of_before(s: Session) -> None:
    await replace(s, config(HEARTBEAT, "15000"), config(ASSIGNMENT, "15000"))
    await until(s, HEARTBEAT, "15000")
    await replace(s, config(ASSIGNMENT, "15001"))
    await replace(s, config("nonsense", "1"), config(HEARTBEAT, "15000"))
    await show(s)
    await replace(s, config(SESSION, "45000"))
    await until(s, HEARTBEAT, "5000")
    await show(s)
    await replace(s)


ONLY_SET = {
    name: tuple(config(each["name"], each["value"]) for each in changes)
    for name, changes in WRONG.items()
    if all(each["config_operation"] == SET for each in changes)
}


@script(cases=ONLY_SET)
async def replaced_group_config(s: Session, configs: tuple[dict[str, Any], ...]) -> None:
    for version in (0, 1, 2):
        await replace(s, *configs, version=version, validate_only=True)


@script(versions=(0, 1, 2))
async def replaced_configs_of_resources_that_are_no_group(s: Session, version: int) -> None:
    async def ask(*resources: dict[str, Any]) -> None:
        await s.ask("alter_configs", version, resources=resources, validate_only=True)

    right = config(SESSION, "50000")
    await ask(replaced("", right))
    await ask(replaced(s.group, right), replaced(f"{s.group}-2", config(SESSION, "1")), replaced("", right))
    await ask(replaced(s.group, right, right), replaced(f"{s.group}-2", config(SESSION, None)))
    await ask()


@script()
async def replaced_configs_of_a_group_named_twice(s: Session) -> None:
    once, again = replaced(s.group, config(SESSION, "50000")), replaced(s.group, config(SESSION, "50001"))
    await s.ask("alter_configs", 2, resources=(once, again), validate_only=True)


@script()
async def resources_that_are_no_group(s: Session) -> None:
    empty = (resource("", change(SESSION, "50000")),)
    await s.ask("incremental_alter_configs", 1, resources=empty)
    await s.ask("describe_configs", 4, resources=(asked(""),))
    twice = (resource(s.group, change(SESSION, "50000")), resource(s.group, change(SESSION, "50001")))
    await s.ask("incremental_alter_configs", 1, resources=twice)
    await s.ask("incremental_alter_configs", 1, resources=())
    await s.ask("describe_configs", 4, resources=())
    await s.ask("describe_configs", 4, resources=(asked(s.group), asked(s.group, (SESSION,))))


@script()
async def members_are_told_the_heartbeat_interval_of_their_group(s: Session) -> None:
    await alter(s, change(HEARTBEAT, "7000"))
    await until(s, HEARTBEAT, "7000")
    fields: dict[str, Any] = {
        "group_id": s.group,
        "member_id": str(uuid.UUID(int=5)),
        "member_epoch": 0,
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": ("u",),
        "topic_partitions": (),
    }
    await s.ask("consumer_group_heartbeat", 1, client_id="consumer", **fields)
    await s.ask("consumer_group_heartbeat", 1, client_id="consumer", **(fields | {"member_epoch": -1}))
    await s.ask("delete_groups", 2, groups_names=(s.group,))
    await show(s)
    await alter(s, change(HEARTBEAT, None, DELETE))


@script()
async def groups_with_configs_are_listed(s: Session) -> None:
    await s.ask("list_config_resources", 1, resource_types=(GROUP,))
    await alter(s, change(SESSION, "50000"))
    other = f"{s.group}-2"
    await s.ask("incremental_alter_configs", 1, resources=(resource(other, change(HEARTBEAT, "6000")),))
    await until(s, SESSION, "50000")
    await until_listed(s, s.group, other)
    await s.ask("list_config_resources", 1, resource_types=(GROUP,))
    await s.ask("list_config_resources", 1, resource_types=(GROUP, GROUP, CLIENT_METRICS))
    await alter(s, change(SESSION, None, DELETE))
    await until_listed(s, other)
    await s.ask("list_config_resources", 1, resource_types=(GROUP,))


async def until_listed(s: Session, *names: str) -> None:
    """Return when the server lists these of the script's groups, and no other one."""
    async with asyncio.timeout(PROPAGATION_S):
        while True:
            answer = await s.quietly("list_config_resources", 1, resource_types=(GROUP,))
            listed = {str(each.resource_name) for each in answer.config_resources}
            if {name for name in listed if name.startswith(s.group)} == set(names):
                return
            await asyncio.sleep(0.05)


TYPES: dict[str, tuple[int, ...]] = {
    "client_metrics": (CLIENT_METRICS,),
    "unknown": (99,),
    "zero": (0,),
    "known_and_unknown": (GROUP, -1),
}


@script(cases=TYPES)
async def resources_with_configs_of_type(s: Session, types: tuple[int, ...]) -> None:
    await s.ask("list_config_resources", 1, resource_types=types)


@script(versions=(0, 1))
async def resources_with_configs_of_all_types(s: Session, version: int) -> None:
    await s.ask("list_config_resources", version)


@script()
async def resources_with_configs_that_are_of_the_cluster(s: Session) -> None:
    for kind in (TOPIC, BROKER, BROKER_LOGGER):
        await s.ask("list_config_resources", 1, resource_types=(kind,))
