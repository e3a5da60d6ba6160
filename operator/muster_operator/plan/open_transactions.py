"""The transactions that a re-shard of the groups' topic waits for (ADR 28).

A transaction names partitions of that topic, so none may be open when they close. An image lets none begin; then each
leader tells, by the number of that image, how many are open. What a pod told before, and what a leader tells that
others have replaced, proves nothing.
"""

from __future__ import annotations

from muster_coordinator.podapi.models import OpenTransactions, ReplicaStatus
from muster_operator.api.models import OffsetsTopic
from muster_operator.plan.observation import ImageNumber, Observation


def open_transactions(seen: Observation, transactions: OffsetsTopic) -> str:
    """Names the transactions of the topic that are open or may be, for people; "": none is, and none can begin."""
    image = seen.image
    if image is None or not image.holds_transactions:
        return "an image that lets no transaction begin"
    number = (image.token, image.version)
    behind = [pod.name for pod in seen.pods if pod.image != number]
    if behind:
        return f"{', '.join(behind)} to let no transaction begin"
    told = [_told(seen, index, number) for index in transactions.layout.indexes]
    unknown = sum(each is None for each in told)
    names = [repr(name) for each in told if each is not None for name in each.some]
    count = sum(each.count for each in told if each is not None)
    if count:
        more = f" and {count - len(names)} more" if count > len(names) else ""
        return f"open transactions: {', '.join(names)}{more}"
    if unknown:
        return f"what {unknown} leaders of {transactions.spec.topic} have open"
    return ""


def _told(seen: Observation, index: int, number: ImageNumber) -> OpenTransactions | None:
    """The open transactions that the leader has told of under this image; None: not yet, or a replica has promised an
    epoch after the leader's.
    """
    views = [view for pod in seen.pods if (view := pod.replicas.get(index)) is not None]
    leader: ReplicaStatus | None = max(
        (view for view in views if view.is_active), key=lambda view: view.leader_epoch, default=None
    )
    if leader is None or leader.leader_epoch < max(view.epoch for view in views):
        return None
    found = leader.open_transactions
    return found if found is not None and (found.token, found.version) == number else None
