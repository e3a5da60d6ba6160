"""The place of a request's records, logged with a slow request so that it can be found in the logs of followers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.pod.status import replica_status
from muster_coordinator.tracing.ports import Attribute


class RequestPlaces:
    """Implements `listener.slow_requests.Places`."""

    def __init__(self, view: ClusterView, manager: ReplicaManager) -> None:
        self._view = view
        self._manager = manager

    def __call__(self, request: Any) -> Mapping[str, Attribute]:
        """The group, or the transactional id, its partition and epoch, the commit point, below which the records of an
        answered request are, and what each follower has written durably (-1: not known). Empty for a request of no
        such key."""
        one = getattr(request, "groups", None) or (request,)  # OffsetFetch of several groups: the first
        name, key, number = self._key_of(one[0])
        if not key:
            return {}
        status = replica_status(self._manager, number) if number is not None else None
        if number is None or status is None:
            return {name: key}
        image = self._view.image
        pods = {each.log_id: each.pod for each in image.places} if image is not None else {}
        return {
            name: key,
            "partition": number,
            "epoch": status.leader_epoch,
            "commit_point": status.high_watermark,
            "followers": [f"{pods.get(each.log_id, each.log_id)}={each.end_offset}" for each in status.followers],
        }

    def _key_of(self, request: Any) -> tuple[str, str, int | None]:
        """(kind of the key, the key, its partition if that is known). The key is "" if the request has none."""
        if group := getattr(request, "group_id", ""):
            return "group", group, self._view.partition_of(group)
        if transactional := getattr(request, "transactional_id", ""):
            return "transactional_id", transactional, self._view.partition_of_transactional_id(transactional)
        return "", "", None
