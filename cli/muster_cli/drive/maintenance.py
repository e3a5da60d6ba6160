"""`muster drain` and `muster fence`: pods that lead nothing until that is taken back. Pure."""

from __future__ import annotations

from functools import partial
from typing import Literal

from muster_cli.drive.checks import pod_named, somebody_acts
from muster_cli.drive.deed import Change, Deed, Progress, Refused
from muster_cli.oncall.seen import Seen
from muster_operator.api.models import OffsetsPartition, PartitionState

Asked = Literal["Drained", "Fenced"]
VERBS: dict[Asked, str] = {"Drained": "drain", "Fenced": "fence"}
NAMED = 10
"""Partitions that a refusal names."""


def take_out(seen: Seen, now: float, pod: str, asked: Asked) -> Deed:
    """Take the leaders off a pod, and keep them off. Raises Refused if a partition would have to stay or would be left
    without a leader, or if nobody would carry it out.
    """
    pod_named(seen, pod)
    somebody_acts(seen, now)
    verb, maintenance = VERBS[asked], seen.cluster.spec.maintenance
    leaderless = [each for each in seen.serving if each.status.state is not PartitionState.LED]
    if leaderless:
        raise Refused(f"{_named(leaderless)}: not led now, so a pod less is not safe. `muster status` says why")
    stuck = [each for each in seen.serving if _holds(each, pod) and not _others(seen, each, pod)]
    if stuck:
        raise Refused(
            f"no other pod that is ready, and neither drained nor fenced, has a replica of {_named(stuck)}: it could"
            " not leave the pod. Wait for the other pods, or give it more replicas"
        )
    count = sum(each.status.leader == pod for each in seen.serving)
    told = f"{count} of {len(seen.serving)} partitions move away from {pod}, and none comes back until"
    told += f" `muster {verb} {pod} --undo`. Its replicas and its volume stay"
    told += ", it is elected in no case, and clients are not told of it any more." if asked == "Fenced" else "."
    change = Change(seen.cluster, {"maintenance": {pod: asked}})
    return Deed(
        told,
        (change,) if maintenance.get(pod) != asked else (),
        partial(_empty, pod, max(count, 1)),
        undo=f"muster {verb} {pod} --undo",
    )


def take_back(seen: Seen, now: float, pod: str, asked: Asked) -> Deed:
    """Let the pod lead again. Raises Refused."""
    found = seen.cluster.spec.maintenance.get(pod)
    if found is None:
        pod_named(seen, pod)
        return Deed(f"{pod} is neither drained nor fenced.", (), _nothing_more)
    if found != asked:
        raise Refused(f"{pod} is {found.lower()}: `muster {VERBS[found]} {pod} --undo` takes that back")
    somebody_acts(seen, now)
    change = Change(seen.cluster, {"maintenance": {pod: None}})
    after = seen.cluster.spec.failover.rebalance_after
    return Deed(
        f"{pod} may lead again: it gets its partitions after {after} without changes.", (change,), _nothing_more
    )


def _empty(pod: str, total: int, seen: Seen) -> Progress:
    left = [each for each in seen.serving if each.status.leader == pod]
    return Progress(max(total - len(left), 0), total, f"{pod} leads {_named(left)}" if left else "")


def _holds(partition: OffsetsPartition, pod: str) -> bool:
    return any(each.pod == pod for each in partition.status.replicas)


def _others(seen: Seen, partition: OffsetsPartition, pod: str) -> list[str]:
    """The pods that could lead it in place of this one."""
    away = {pod, *seen.cluster.spec.maintenance}
    ready = {each.name for each in seen.pods if each.ready} - away
    return [each.pod for each in partition.status.replicas if each.pod in ready]


def _named(partitions: list[OffsetsPartition]) -> str:
    names = [each.metadata.name for each in partitions]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _nothing_more(seen: Seen) -> Progress:
    return Progress(1, 1)
