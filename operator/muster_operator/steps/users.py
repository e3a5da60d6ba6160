"""Steps: give pods the users and ACLs of Kafka clients, keep passwords of users, and say what is in force (ADR 38)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from muster_coordinator.podapi.users import AccessImage, AccessRequest
from muster_operator.plan.actions import Action, GiveAccess, WriteUserStatus
from muster_operator.plan.observation import CallKind
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.pod_calls import call_pod
from muster_operator.steps.telling import write_each


async def give_access(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Gives access in the background: who was removed is out when the calls are answered."""
    todo = next((each for each in actions if isinstance(each, GiveAccess)), None)
    if todo is None:
        return None
    for pod in todo.pods:
        call_pod(context, CallKind.ACCESS, pod, partial(_give, context, todo.image), failed="access_not_taken")
    users, acls = len(todo.image.users), len(todo.image.acls)
    return Outcome("AccessGiven", f"{users} users and {acls} ACLs to {', '.join(todo.pods)}")


async def _give(context: Context, image: AccessImage, session: PodSession) -> bool:
    run = session.runs
    answer = await session.client.give_access(AccessRequest(context.seen.fencing_token, image))
    session.learn_access(run, answer.fingerprint)
    return answer.fingerprint == image.fingerprint  # a pod of an earlier version leaves out what it does not know


async def keep_users(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Keeps users after leadership: it can be slow. What it finds or makes is in the next observation."""
    cluster = context.seen.cluster
    users = context.seen.users
    if cluster is None or cluster.spec.suspend or not cluster.spec.access.muster_users or users is None:
        return None
    done = await context.workload.keep_users(cluster, users)
    return Outcome("UsersKept", done) if done else None


async def write_user_status(context: Context, actions: Sequence[Action]) -> Outcome | None:
    todo = [each for each in actions if isinstance(each, WriteUserStatus)]
    store = context.store
    told = await write_each(
        context, "write_user_status", todo, lambda each: store.write_user_status(each.seen, each.status)
    )
    return Outcome("UsersTold", f"{len(todo)} users") if told else None
