"""The pods that do not have the users and ACLs of Kafka clients, and what is said of each MusterUser (ADR 38)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from muster_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    find_condition,
    with_condition,
    without_condition,
)
from muster_operator.api.models import MusterUser
from muster_operator.api.user import UserQuotas
from muster_operator.plan.actions import GiveAccess, WriteUserStatus
from muster_operator.plan.observation import CallKind, Observation


def give_access(seen: Observation) -> Iterator[GiveAccess]:
    """Gives access to every pod that has something else. A pod that takes none has the files of an older template."""
    if seen.access is None or seen.cluster is None or not seen.cluster.spec.access.muster_users:
        return
    wanted = seen.access.fingerprint
    behind = tuple(
        pod.name
        for pod in seen.pods
        if pod.is_up and pod.access not in (None, wanted) and (CallKind.ACCESS, pod.name) not in seen.busy
    )
    if behind:
        yield GiveAccess(behind, seen.access.image)


def tell_users(seen: Observation, time: str) -> Iterator[WriteUserStatus]:
    """A user that was once in force keeps that condition while other users and pods come and go."""
    lagging = _lagging(seen)
    for user in seen.users or ():
        ready = find_condition(user.status.conditions, ConditionType.READY)
        status, reason, message = _verdict(seen, user, lagging)
        was = ready is not None and ready.status == "True"
        if was and reason is Reason.GIVING and user.status.observed_generation == user.metadata.generation:
            continue
        condition = Condition(
            ConditionType.READY, status, reason, message, observed_generation=user.metadata.generation
        )
        acls, quotas = _in_force(user, reason)
        after = replace(
            user.status,
            acls=acls,
            quotas=quotas,
            observed_generation=user.metadata.generation,
            # Stalled was written of an object that did not decode.
            conditions=without_condition(
                with_condition(user.status.conditions, condition, time), ConditionType.STALLED
            ),
            username=user.username,
            secret=user.secret,
        )
        if after != user.status:
            yield WriteUserStatus(user, after)


def _in_force(user: MusterUser, reason: Reason) -> tuple[int, UserQuotas]:
    """(number of ACLs, quotas) on all pods; while others are being given some pods have those of before still."""
    if reason is Reason.IN_FORCE:
        return sum(len(each.operations) for each in user.spec.acls), user.spec.quotas
    return (user.status.acls, user.status.quotas) if reason is Reason.GIVING else (0, UserQuotas())


def _lagging(seen: Observation) -> list[str]:
    wanted = None if seen.access is None else seen.access.fingerprint
    return [pod.name for pod in seen.pods if pod.is_up and pod.access != wanted]


def _verdict(seen: Observation, user: MusterUser, lagging: Sequence[str]) -> tuple[ConditionStatus, Reason, str]:
    name = user.spec.cluster_ref.name
    if seen.cluster is None:
        return "False", Reason.CLUSTER_NOT_FOUND, f"there is no CoordinatorCluster {name}"
    if not seen.cluster.spec.access.muster_users:
        text = f"CoordinatorCluster {name} takes users and ACLs from files: set its spec.access.musterUsers"
        return "False", Reason.USERS_FROM_FILES, text
    if seen.access is None:
        return "False", Reason.GIVING, "the operator has not read yet which passwords there are"
    if (trouble := seen.access.trouble.get(user.metadata.name)) is not None:
        return "False", *trouble
    if user.has_password and user.username not in seen.access.image.users:
        return "False", Reason.GIVING, f"the password is being made, or Secret {user.secret} read"
    if lagging or not seen.pods:
        return "False", Reason.GIVING, f"not in force yet on {', '.join(lagging) or 'any pod: there is none'}"
    return "True", Reason.IN_FORCE, f"User:{user.username} is in force on all pods that run"
