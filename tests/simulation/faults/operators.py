"""What an operator does: its steps, its record, its caches, its sessions and its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from msgspec.structs import replace
from tests.simulation.faults.fault import Fault

from muster_coordinator.peers.holders import Holders
from muster_coordinator.podapi.models import Election
from muster_operator import reconcile
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, OffsetsTopic
from muster_operator.kube import store as kube_store
from muster_operator.kube.cache import Cache
from muster_operator.kube.objects import status_body
from muster_operator.kube.store import KubeStore
from muster_operator.plan import decide, metadata, objects, set_change
from muster_operator.plan.actions import Action, Elect
from muster_operator.plan.decision import Decision
from muster_operator.plan.observation import PodView
from muster_operator.plan.partition_view import Member, PartitionView
from muster_operator.steps import STEPS
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.record import record_leadership
from muster_operator.store.port import ConflictError, StoreError

__all__ = ["OPERATOR_FAULTS"]

elect_step = import_module("muster_operator.steps.elect")  # the package has the function under this name


# -- steps ------------------------------------------------------------------------------------------------------------

CALLED_FIRST = (elect_step.elect, record_leadership, *STEPS[2:])


async def _whatever_became_of_the_record(context: Context, actions: Sequence[Action]) -> Outcome | None:
    try:
        return await record_leadership(context, actions)
    except ConflictError:
        raise
    except StoreError:
        return None


def _the_new_set_alone(each: Elect) -> Election:
    return Election(each.index, each.epoch, each.replicas, bootstrap=each.bootstrap, force=each.force)


_elect = elect_step._elect


async def _some_other_pod(context: Context, pod: str, elections: Sequence[Elect]) -> None:
    names = [view.name for view in context.seen.pods if view.name != pod and view.is_up]
    await _elect(context, names[0] if names else pod, elections)


# -- store and caches -------------------------------------------------------------------------------------------------

_record = KubeStore.record_leadership


async def _conflict_is_success(self: KubeStore, seen: OffsetsTopic, lines: Mapping[str, str]) -> OffsetsTopic:
    try:
        return await _record(self, seen, lines)
    except ConflictError:
        return seen


def _without_version(resource: Any, meta: Any, status: Any, *, swap: bool) -> Any:
    return status_body(resource, meta, status, swap=False)


def _newest_for_ever(self: Cache[Any], listed: dict[Any, Any], resource_version: str) -> None:
    for name, (known, _) in list(self._objects.items()):
        if name not in listed and known <= int(resource_version):
            self._drop(name)
    for name, (each, value) in listed.items():
        self.put(name, each, value)


# -- plan -------------------------------------------------------------------------------------------------------------


def _as_shown(topic: OffsetsTopic, partition: OffsetsPartition) -> OffsetsPartition:
    return partition


_elect_new_set = set_change._elect_new_set


def _change_forgets_the_set_before(
    partition: PartitionView, own: Member, view: Any, status: OffsetsPartitionStatus, idle: Decision
) -> Decision:
    decision = _elect_new_set(partition, own, view, status, idle)
    return Decision(
        replace(decision.status, previous_replicas=()), decision.message, decision.elect, decision.create_on
    )


def _without_learners(
    partitions: Mapping[int, OffsetsPartitionStatus], pods: Iterable[PodView]
) -> Iterable[tuple[int, str, str]]:
    return _places({index: replace(status, learners=()) for index, status in partitions.items()}, pods)


_places = metadata._places


OPERATOR_FAULTS = {
    "copied volume is not noticed": Fault(50, Holders, "look", lambda self, own, is_lost: False),
    "a pod is called before the record": Fault(50, reconcile, "STEPS", CALLED_FIRST),
    "a record that may have failed is taken for done": Fault(
        1200, reconcile, "STEPS", (_whatever_became_of_the_record, *STEPS[1:])
    ),
    "a conflict of the record is taken for success": Fault(600, KubeStore, "record_leadership", _conflict_is_success),
    "the record is written without its version": Fault(200, kube_store, "status_body", _without_version),
    "a change of the set is called without the set before": Fault(50, elect_step, "_call", _the_new_set_alone),
    "an election goes to a pod that was not recorded": Fault(50, elect_step, "_elect", _some_other_pod),
    "the record is not read": Fault(100, objects, "as_recorded", _as_shown),
    "a list does not bring back what was restored": Fault(400, Cache, "replace", _newest_for_ever),
    "a change of the set forgets the set before": Fault(
        50, set_change, "_elect_new_set", _change_forgets_the_set_before
    ),
    "pods are not told of learners": Fault(100, metadata, "_places", _without_learners),
    "sets that the log names are not taken over": Fault(1200, decide, "_adopt_sets", lambda partition, attempt: None),
}
