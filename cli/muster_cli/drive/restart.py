"""`muster restart`: pods that the operator replaces one after the other, as in a rollout. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from muster_cli.drive.checks import pod_named, somebody_acts
from muster_cli.drive.deed import Change, Deed, Progress, Refused
from muster_cli.oncall.seen import Seen
from muster_operator.api.conditions import ConditionType, find_condition
from muster_operator.api.models import PartitionState


def restart(seen: Seen, now: float, pod: str) -> Deed:
    """Have this pod replaced, or all of them if `pod` is "". Raises Refused if it would be unsafe or never be done."""
    chosen = [pod_named(seen, pod)] if pod else list(seen.pods)
    somebody_acts(seen, now)
    name = seen.cluster.metadata.name
    if not chosen:
        raise Refused(f"cluster {name} has no pods")
    if seen.cluster.spec.rollout.paused:
        raise Refused(f"spec.rollout.paused of {name} is set: the operator replaces no pod. Take it back first")
    away = [each.name for each in seen.pods if not each.ready and each not in chosen]
    if away:
        raise Refused(f"{', '.join(away)} is not ready: a pod more that is away could stop partitions. Mend it first")
    alone = [each.metadata.name for each in seen.serving if len(each.status.replicas) == 1]
    uids = {each.name: each.uid for each in chosen}
    told = (
        f"{', '.join(uids)} will be replaced one at a time, leaders first moved, each when all replicas follow again."
    )
    if alone:
        told += f" {len(alone)} partitions have one replica, and are away meanwhile: {', '.join(alone[:10])}."
    wanted = {each: uid for each, uid in uids.items() if seen.cluster.spec.rollout.restart.get(each) != uid}
    changes = (Change(seen.cluster, {"rollout": {"restart": wanted}}),) if wanted else ()
    return Deed(told, changes, partial(_replaced, uids), undo="muster restart --undo")


def undo_restart(seen: Seen, now: float) -> Deed:
    """Replace no further pod."""
    present = {each.name: each.uid for each in seen.pods}
    left = [name for name, uid in seen.cluster.spec.rollout.restart.items() if present.get(name) == uid]
    if not left:
        return Deed("No pod is to be restarted.", (), _nothing_more)
    somebody_acts(seen, now)
    change = Change(seen.cluster, {"rollout": {"restart": None}})
    return Deed(f"{', '.join(left)} is not restarted.", (change,), _nothing_more)


def _replaced(uids: Mapping[str, str], seen: Seen) -> Progress:
    """Done: there are new pods, they are ready, and every replica of every partition follows."""
    new = [each.name for each in seen.pods if each.ready and each.name in uids and each.uid != uids[each.name]]
    total = len(uids) + 1
    if len(new) < len(uids):
        ready = find_condition(seen.cluster.status.conditions, ConditionType.READY)
        text = f"{len(new)} of {len(uids)} pods are replaced"
        return Progress(len(new), total, f"{text}; {ready.message}" if ready is not None else text)
    behind = [
        each.metadata.name
        for each in seen.serving
        if each.status.state is not PartitionState.LED or each.status.following < len(each.status.replicas)
    ]
    return Progress(len(new) + (not behind), total, f"not all replicas follow of {', '.join(behind[:10])}")


def _nothing_more(seen: Seen) -> Progress:
    return Progress(1, 1)
