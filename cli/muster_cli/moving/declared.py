"""Moves on Kubernetes: ConsumerGroups say where groups shall be, and the operator has them moved."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from muster_cli.drive.carry_out import MANAGER
from muster_cli.errors import CliError, CliUsageError
from muster_cli.moving.run import GroupOutcome, Outcome, named
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.seen import Seen
from muster_operator.api.conditions import ConditionType, Reason, condition_status, find_condition
from muster_operator.api.consumer_group import KAFKA, MUSTER, Side
from muster_operator.api.models import ConsumerGroup, ConsumerGroupStatus, CoordinatorCluster
from muster_operator.kube.objects import API_VERSION, collection_path, decode, object_path
from muster_operator.plan.groups import counting
from muster_operator.store.port import StoreError

LOOK_S = 0.5
"""Seconds from one look at the status to the next one."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?")
"""The form of an object's name in Kubernetes."""


class DeclaredGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A ConsumerGroup as `--json` prints it. Its names stay compatible. `now`: "" while nobody has said.
    `written_back`: whether Kafka gets its offsets (None: nobody says so), else `write_problem` has the reason."""

    name: str
    group: str
    wanted: str
    now: str
    reason: str
    message: str
    fenced_ms: int
    written_back: bool | None
    write_problem: str


async def the_cluster(reader: KubernetesReader) -> CoordinatorCluster:
    """Raises Unreachable, CliUsageError."""
    seen: tuple[Seen, ...] = await reader.look()
    if len(seen) != 1:
        names = ", ".join(each.cluster.metadata.name for each in seen) or "none"
        raise CliUsageError(f"name the cluster by --cluster; there are: {names}")
    return seen[0].cluster


async def declared_groups(reader: KubernetesReader, cluster: CoordinatorCluster) -> list[ConsumerGroup]:
    """Those of the cluster. Raises CliError."""
    return _of(cluster, await _all_of(reader, cluster.metadata.namespace))


def _of(cluster: CoordinatorCluster, groups: Iterable[ConsumerGroup]) -> list[ConsumerGroup]:
    return [each for each in groups if each.spec.cluster_ref.name == cluster.metadata.name]


def shown(groups: Sequence[ConsumerGroup]) -> list[DeclaredGroup]:
    found = []
    for each in groups:
        ready = find_condition(each.status.conditions, ConditionType.READY)
        written = find_condition(each.status.conditions, ConditionType.WRITTEN_BACK)
        last = each.status.last_move
        found.append(
            DeclaredGroup(
                each.metadata.name,
                each.spec.group,
                each.spec.coordinator,
                each.status.coordinator,
                ready.reason if ready is not None else "",
                ready.message if ready is not None else "",
                last.fenced_ms if last is not None else 0,
                None if written is None else written.status == "True",
                written.message if written is not None and written.status != "True" else "",
            )
        )
    return found


async def move_declared(
    reader: KubernetesReader,
    cluster: CoordinatorCluster,
    groups: Sequence[str],
    wanted: Side,
    timeout_s: float,
    say: Callable[[GroupOutcome], None],
    *,
    dry_run: bool,
) -> list[GroupOutcome]:
    """Declare where all are `wanted`, then follow each. Raises CliError."""
    if dry_run:
        outcomes = [_foreseen(cluster, group, wanted) for group in groups]
        for each in outcomes:
            say(each)
        return outcomes
    there = await _all_of(reader, cluster.metadata.namespace)
    already = {each.spec.group for each in _of(cluster, there) if each.spec.coordinator == wanted and _is_there(each)}
    for group in groups:
        there += await _declare(reader, cluster, group, wanted, there)
    outcomes = []
    for group in groups:
        outcome = await _followed(reader, cluster, group, timeout_s)
        if group in already:
            outcome = GroupOutcome(group, named(Outcome.ALREADY, back=wanted == KAFKA))
        say(outcome)
        outcomes.append(outcome)
    return outcomes


def _foreseen(cluster: CoordinatorCluster, group: str, wanted: Side) -> GroupOutcome:
    """The verdict that the declaration of the cluster alone gives."""
    upstream = cluster.spec.upstream
    if upstream is None or upstream.serves(group):
        if wanted == MUSTER:
            return GroupOutcome(group, Outcome.ALREADY)
        reason = f"CoordinatorCluster {cluster.metadata.name} serves it for good"
        return GroupOutcome(group, Outcome.STAYS_AT_MUSTER, (reason,))
    if upstream.lets_move(group):
        return GroupOutcome(group, Outcome.READY)
    if wanted == KAFKA:
        return GroupOutcome(group, Outcome.ALREADY_BACK)
    reason = f"spec.upstream.movableGroups of CoordinatorCluster {cluster.metadata.name} does not name it"
    return GroupOutcome(group, Outcome.STAYS, (reason,))


async def _all_of(reader: KubernetesReader, namespace: str) -> list[ConsumerGroup]:
    try:
        raw = await reader.listed(collection_path(ConsumerGroup, namespace))
        return [decode(ConsumerGroup, each) for each in raw]
    except (StoreError, msgspec.ValidationError) as error:
        raise CliError(f"ConsumerGroups cannot be read: {error}") from None


async def _declare(
    reader: KubernetesReader, cluster: CoordinatorCluster, group: str, wanted: Side, there: Sequence[ConsumerGroup]
) -> list[ConsumerGroup]:
    """Returns what was made beside what is `there`, all of the namespace. Raises CliError."""
    meta = cluster.metadata
    spec: dict[str, Any] = {"clusterRef": {"name": meta.name}, "group": group, "coordinator": wanted}
    present = counting(_of(cluster, there)).get(group)
    try:
        if present is not None:
            path = object_path(ConsumerGroup, meta.namespace, present.metadata.name)
            await reader.client.merge(path, {"spec": {"coordinator": wanted}}, manager=MANAGER)
            return []
        name = _name_of(group, meta.name, {each.metadata.name for each in there})
        body = {"apiVersion": API_VERSION, "kind": ConsumerGroup.__name__, "metadata": {"name": name}, "spec": spec}
        made = await reader.client.create(collection_path(ConsumerGroup, meta.namespace), body)
    except StoreError as error:
        raise CliError(f"the ConsumerGroup of {group} was not declared: {error}") from None
    return [decode(ConsumerGroup, made)]


def _name_of(group: str, cluster: str, taken: set[str]) -> str:
    """Its own name, if it can be one and is free."""
    if NAME.fullmatch(group) and group not in taken:
        return group
    slug = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")[:200] or "group"
    return f"{slug}-{hashlib.sha256(f'{cluster}/{group}'.encode()).hexdigest()[:8]}"


async def _followed(
    reader: KubernetesReader, cluster: CoordinatorCluster, group: str, timeout_s: float
) -> GroupOutcome:
    last = GroupOutcome(group, Outcome.UNKNOWN, ("the operator has not looked at it yet",))
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                present = counting(await declared_groups(reader, cluster)).get(group)
                if present is None:
                    return GroupOutcome(group, Outcome.UNKNOWN, ("somebody has deleted its ConsumerGroup",))
                if _is_seen(present):
                    last = _outcome(present)
                    if _is_there(present) or condition_status(present.status.conditions, "Stalled") == "True":
                        return last
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        return last


def _is_seen(group: ConsumerGroup) -> bool:
    """The operator has said something of what is declared now."""
    return group.status.observed_generation == group.metadata.generation


def _is_there(group: ConsumerGroup) -> bool:
    return _is_seen(group) and condition_status(group.status.conditions, ConditionType.READY) == "True"


def _outcome(group: ConsumerGroup) -> GroupOutcome:
    status: ConsumerGroupStatus = group.status
    ready = find_condition(status.conditions, ConditionType.READY)
    fenced_ms = status.last_move.fenced_ms if status.last_move is not None else 0
    back = group.spec.coordinator == KAFKA
    if _is_there(group):
        return GroupOutcome(group.spec.group, named(Outcome.MOVED, back=back), fenced_ms=fenced_ms)
    said = f"{ready.reason}: {ready.message}" if ready is not None else Reason.NOT_SEEN
    return GroupOutcome(group.spec.group, named(Outcome.STAYS, back=back), (said,), fenced_ms)
