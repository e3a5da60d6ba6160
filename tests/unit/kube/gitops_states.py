"""Objects as the operator's own planner leaves them, in the states that GitOps tools have to tell apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import msgspec
from msgspec.structs import replace
from tests.support.gitops import Health, Json
from tests.unit.operator.fakes import cluster
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_backups import GOOD, asked, status_of
from tests.unit.operator.test_backups import seen as seen_of_backups
from tests.unit.operator.test_groups import HERE, KNOWN, group
from tests.unit.operator.test_groups import seen as observed_groups
from tests.unit.operator.test_groups import written as written_groups
from tests.unit.operator.test_users import user

from muster_operator.api.backup_result import BackupResult
from muster_operator.api.conditions import Condition, Reason
from muster_operator.api.meta import GROUP, VERSION
from muster_operator.api.models import (
    Backups,
    BackupStore,
    CoordinatorCluster,
    MusterUser,
    OffsetsPartition,
    OffsetsTopic,
    PartitionState,
    Resource,
    Rollout,
    Upstream,
)
from muster_operator.plan.access import AccessState, access_of
from muster_operator.plan.actions import WriteClusterStatus, WritePartitionStatus, WriteTopicStatus, WriteUserStatus
from muster_operator.plan.group_facts import GroupFacts
from muster_operator.plan.observation import BackupJob, Observation, PodView
from muster_operator.plan.planner import plan
from muster_operator.plan.status import partition_status
from muster_operator.plan.verdict import Verdict, conditions_of

See = Callable[[Observation], Observation]


def json_of(resource: Resource) -> Json:
    """As the API server shows it: what is not set is not there."""
    shown = {"apiVersion": f"{GROUP}/{VERSION}", "kind": type(resource).__name__, **msgspec.to_builtins(resource)}
    bare = _without_nothing(shown)
    assert isinstance(bare, dict)
    return bare


def _without_nothing(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nothing(each) for name, each in value.items() if each is not None}
    return [_without_nothing(each) for each in value] if isinstance(value, list | tuple) else value


def settled(**changes: object) -> Model:
    """A cluster of three pods with all partitions led. `changes`: of its spec, after that."""
    model = Model(replication_factor=3)
    Operator(model).settle(40)
    assert model.all_led
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, **changes))
    return model


def told(model: Model, see: See = lambda seen: seen) -> dict[type[Resource], Resource]:
    """Each kind's first object after one more plan, with what that writes. `see`: what else the operator sees."""
    seen = see(Operator(model, token=2).observe())
    after: dict[type[Resource], Resource] = {}
    if seen.cluster is not None:
        after[CoordinatorCluster] = seen.cluster
    for kind, present in ((OffsetsTopic, seen.topics), (OffsetsPartition, seen.partitions), (MusterUser, seen.users)):
        if present:
            after[kind] = present[0]
    for each in plan(seen, model.now + 1):
        if isinstance(each, WriteClusterStatus) and seen.cluster is not None:
            after[CoordinatorCluster] = replace(seen.cluster, status=each.status)
        elif isinstance(each, WriteTopicStatus | WritePartitionStatus | WriteUserStatus):
            kind = type(each.seen)
            if each.seen.metadata.name == after[kind].metadata.name:
                after[kind] = replace(each.seen, status=each.status)  # type: ignore[type-var]
    return after


def cluster_when(see: See = lambda seen: seen, **changes: object) -> Json:
    return json_of(told(settled(**changes), see)[CoordinatorCluster])


def topic_when(see: See = lambda seen: seen) -> Json:
    return json_of(told(settled(), see)[OffsetsTopic])


def _pods(change: Callable[[PodView], PodView]) -> See:
    """The last pod is seen so."""
    return lambda seen: with_fields(seen, pods=(*seen.pods[:-1], change(seen.pods[-1])))


def _with_condition(shown: Json, kind: str, status: str, reason: str, message: str) -> Json:
    generation = shown["metadata"]["generation"]
    more = msgspec.to_builtins(Condition(kind, status, reason, message, "2026-01-01T00:00:00Z", generation))  # type: ignore[arg-type]
    return {**shown, "status": {**shown["status"], "conditions": [*shown["status"]["conditions"], more]}}


def _meta(shown: Json, **changes: object) -> Json:
    return {**shown, "metadata": {**shown["metadata"], **changes}}


def _never_seen() -> Json:
    """As the defaults of the definition make it."""
    unseen = Condition("Ready", "Unknown", Reason.NOT_SEEN, "", "1970-01-01T00:00:00Z", 0)
    shown = json_of(cluster())
    return {**shown, "status": {"conditions": [msgspec.to_builtins(unseen)]}}


def _invalid(shown: Json) -> Json:
    """As kube.invalid writes it."""
    verdict = Verdict(Reason.INVALID_SPEC, "the operator does not understand this object", stalled=True)
    after = conditions_of((), verdict, 2, "2026-01-01T00:00:00Z")
    return {
        **_meta(shown, generation=2),
        "status": {"observedGeneration": 2, "conditions": [msgspec.to_builtins(each) for each in after]},
    }


def partition_when(state: PartitionState, reason: Reason, damage: str = "") -> Json:
    partition = told(settled())[OffsetsPartition]
    assert isinstance(partition, OffsetsPartition)
    decided = replace(partition.status, state=state, reason=reason)
    after = partition_status(partition, decided, "so it is", "2026-01-01T00:00:00Z", damage)
    return json_of(replace(partition, status=after))


def user_when(*, takes: bool = True, given: bool = True, access: AccessState | None = None) -> Json:
    declared = user("billing", authentication={"type": "External"})
    known = access or access_of((declared,), {}, {})

    def see(seen: Observation) -> Observation:
        assert seen.cluster is not None
        asked = replace(
            seen.cluster, spec=replace(seen.cluster.spec, access=replace(seen.cluster.spec.access, muster_users=takes))
        )
        pods = tuple(with_fields(pod, access=known.fingerprint if given else "") for pod in seen.pods)
        return with_fields(seen, cluster=asked, users=(declared,), access=known, pods=pods)

    return json_of(told(settled(), see)[MusterUser])


def group_when(facts: GroupFacts, coordinator: str = "Muster", name: str = "k-orders", **seen: Any) -> Json:
    declared = group(name, coordinator)
    return json_of(written_groups(observed_groups(declared, facts=facts, **seen))[name])


def states() -> dict[str, tuple[Json, Health]]:
    """Object and health, by name of the state."""
    led = cluster_when()
    return {
        "cluster: all is as declared": (led, "Healthy"),
        "cluster: no operator has seen it": (_never_seen(), "Progressing"),
        "cluster: a newer generation than the operator has seen": (_meta(led, generation=2), "Progressing"),
        "cluster: is being deleted": (_meta(led, deletionTimestamp="2026-01-01T00:00:00Z"), "Progressing"),
        "cluster: a pod is missing": (
            cluster_when(lambda seen: with_fields(seen, pods=seen.pods[:2])),
            "Progressing",
        ),
        "cluster: a pod is not ready": (cluster_when(_pods(lambda pod: with_fields(pod, ready=False))), "Progressing"),
        "cluster: a rollout is under way": (
            cluster_when(_pods(lambda pod: with_fields(pod, outdated=True))),
            "Progressing",
        ),
        "cluster: a rollout waits for its window": (
            cluster_when(
                lambda seen: with_fields(
                    _pods(lambda pod: with_fields(pod, outdated=True))(seen), rollout_waits="the window is closed"
                )
            ),
            "Progressing",
        ),
        "cluster: a rollout is paused": (
            cluster_when(_pods(lambda pod: with_fields(pod, outdated=True)), rollout=Rollout(paused=True)),
            "Suspended",
        ),
        "cluster: volumes grow": (
            cluster_when(lambda seen: with_fields(seen, growing="data-c-0 grows")),
            "Progressing",
        ),
        "cluster: hibernates": (cluster_when(hibernate=True), "Suspended"),
        "cluster: is suspended": (cluster_when(suspend=True), "Suspended"),
        "cluster: pods are refused": (
            cluster_when(lambda seen: with_fields(seen, refusal="no such quota")),
            "Degraded",
        ),
        "cluster: settings are wrong": (
            cluster_when(lambda seen: with_fields(seen, invalid_settings="group.max.size: not a number")),
            "Degraded",
        ),
        "cluster: its name is taken": (
            cluster_when(lambda seen: with_fields(seen, conflict="StatefulSet c is somebody else's")),
            "Degraded",
        ),
        "cluster: certificates cannot be renewed": (
            cluster_when(lambda seen: with_fields(seen, certificates="Secret s has no ca.crt")),
            "Degraded",
        ),
        "cluster: an outdated definition": (
            cluster_when(lambda seen: with_fields(seen, outdated_definitions="offsetstopics.muster.dev")),
            "Degraded",
        ),
        "cluster: the upstream is not followed": (
            cluster_when(
                _pods(lambda pod: with_fields(pod, mirror_problem="refused")), upstream=Upstream("kafka:9092")
            ),
            "Progressing",
        ),
        "cluster: served by fewer copies": (
            _with_condition(led, "Degraded", "True", "UnderReplicated", "all copies of 3 of 4 partitions follow"),
            "Progressing",
        ),
        "cluster: an upgrade is available": (
            _with_condition(led, "UpgradeAvailable", "True", "UpgradeAvailable", "pods run muster:1"),
            "Healthy",
        ),
        "cluster: does not decode": (_invalid(led), "Degraded"),
        "cluster: has no topic yet": (
            cluster_when(lambda seen: with_fields(seen, topics=(), partitions=())),
            "Healthy",
        ),
        "topic: all is as declared": (topic_when(), "Healthy"),
        "topic: its cluster is not there yet": (
            topic_when(lambda seen: with_fields(seen, cluster=None)),
            "Progressing",
        ),
        "topic: a partition is lost": (
            _topic_with_lost_partition(),
            "Degraded",
        ),
        "topic: is being re-sharded": (_topic_in_reshard(), "Progressing"),
        "partition: is led": (partition_when(PartitionState.LED, Reason.LED), "Healthy"),
        "partition: is being elected": (partition_when(PartitionState.ELECTING, Reason.LOADING), "Progressing"),
        "partition: waits for a pod": (partition_when(PartitionState.LEADERLESS, Reason.POD_DOWN), "Degraded"),
        "partition: sleeps": (partition_when(PartitionState.LEADERLESS, Reason.HIBERNATED), "Suspended"),
        "partition: its log is lost": (partition_when(PartitionState.STALLED, Reason.LOG_LOST), "Degraded"),
        "partition: is led, and a log is damaged": (
            partition_when(PartitionState.LED, Reason.LED, "pod c-0: checksum"),
            "Degraded",
        ),
        "partition: was replaced": (partition_when(PartitionState.RETIRED, Reason.RETIRED), "Healthy"),
        "group: is where it shall be": (group_when(HERE), "Healthy"),
        "group: is to move, and something is in the way": (
            group_when(with_fields(KNOWN, obstacles=("a transaction is open",))),
            "Progressing",
        ),
        "group: its cluster is not there yet": (group_when(KNOWN, cluster=None), "Progressing"),
        "group: is to go back": (group_when(HERE, coordinator="Kafka"), "Progressing"),
        "group: cannot go back": (group_when(HERE, coordinator="Kafka", name="m-orders"), "Degraded"),
        "user: is in force": (user_when(), "Healthy"),
        "user: is being given": (user_when(given=False), "Progressing"),
        "user: the cluster takes users from files": (user_when(takes=False), "Degraded"),
        "user: its password is not there yet": (
            user_when(access=_with_trouble(Reason.PASSWORD_NOT_KEPT)),
            "Progressing",
        ),
        "user: its ACLs are refused": (user_when(access=_with_trouble(Reason.INVALID_ACLS)), "Degraded"),
        "cluster: its last backup failed": (
            cluster_when(
                lambda seen: with_fields(seen, backup_jobs=(_ended_with(BackupResult(error="no room")),)),
                backup=Backups(BackupStore(claim="c")),
            ),
            "Healthy",
        ),
        "backup: waits": (backup_when(pods=()), "Progressing"),
        "backup: is being made": (backup_when(BackupJob("j", "uid-now", "", "")), "Progressing"),
        "backup: is made": (backup_when(_ended_with(GOOD)), "Healthy"),
        "backup: failed": (backup_when(_ended_with(BackupResult(error="no room"))), "Degraded"),
        "backup: is damaged": (backup_when(_ended_with(replace(GOOD, problems="a file"))), "Degraded"),
    }


def backup_when(*jobs: BackupJob, **more: Any) -> Json:
    status = status_of(seen_of_backups(None, asked(), backup_jobs=jobs, **more))
    return json_of(replace(asked(), status=status))


def _ended_with(result: BackupResult) -> BackupJob:
    return BackupJob("j", "uid-now", "", "", "2026-11-28T09:20:00Z", result)


def _with_trouble(reason: Reason) -> AccessState:
    return access_of((), {}, {"billing": (reason, "why")})


def _topic_with_lost_partition() -> Json:
    model = settled()
    for name in ("c-0", "c-1"):
        model.lose_volume(name)
    Operator(model, token=3).settle(40)
    return json_of(model.topic)


def _topic_in_reshard() -> Json:
    model = settled()
    model.ask(2)
    operator = Operator(model, token=3)
    operator.replan()
    while operator.todo:
        operator.act()
    return json_of(told(model)[OffsetsTopic])
