"""The Jobs that make backups: they are made, watched, and what they have left is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import structlog

from muster_operator.api.backup_result import BackupResult
from muster_operator.api.models import CoordinatorCluster, MusterBackup
from muster_operator.api.restore_result import RestoreResult
from muster_operator.kube.backup_manifests import ASKED, BACKUP_LABEL, RESTORES, SLOT, backup_job, run_arguments
from muster_operator.kube.cache import Cache, take, take_list
from muster_operator.kube.client import Json, KubeClient, is_refused
from muster_operator.kube.pod_info import trouble_of
from muster_operator.plan.backups import GOOD_FOR_MINUTES
from muster_operator.plan.observation import BackupJob
from muster_operator.store.port import ClusterKey, ConflictError, StoreError
from muster_operator.store.workload import PodInfo

log = structlog.get_logger(__name__)

Result = TypeVar("Result", BackupResult, RestoreResult)

JOBS = "/apis/batch/v1"
_BEGINS = ("ContainerCreating", "PodInitializing")
"""Reasons for which a container waits when all is well."""


class KubeBackups:
    """See `muster_operator.store.workload.BackupJobs`."""

    def __init__(
        self,
        client: KubeClient,
        default_image: str,
        tell: Callable[[ClusterKey], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`default_image`: of Jobs whose cluster names none. `tell` is called when there is news of a cluster."""
        self._client = client
        self._default_image = default_image
        self._tell = tell
        self._wall = wall
        self._jobs: Cache[Json] = Cache(cluster_of_job)
        self._results: dict[str, BackupResult | None] = {}
        """The result that each Job has left, by the uid of a Job that has ended."""
        self._held_up: dict[str, str] = {}
        """The reason why the pod of each Job did not begin when it was last looked at, by the Job's uid."""
        self._known = False

    async def load(self, namespace: str | None) -> None:
        """List all. Without the right to do so, or the kind, nothing is known of backups. Raises StoreError."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        try:
            listed = await self._client.list_all(f"{JOBS}{scope}/jobs", label_selector=BACKUP_LABEL)
        except StoreError as error:
            if not is_refused(error):
                raise
            log.warning("jobs_not_known", error=str(error))
            return
        before = {cluster_of_job(each) for each in self._jobs.values()}
        take_list(self._jobs, listed)
        self._known = True
        there = {each["metadata"]["uid"] for each in self._jobs.values()}
        self._results = {uid: result for uid, result in self._results.items() if uid in there}
        self._held_up = {uid: why for uid, why in self._held_up.items() if uid in there}
        for key in before | {cluster_of_job(each) for each in self._jobs.values()}:
            self._tell(key)

    def deliver(self, event: str | None, raw: Json) -> None:
        """Take a watch event of a Job."""
        if take(self._jobs, event, raw):
            self._tell(cluster_of_job(raw))

    def jobs(self, key: ClusterKey) -> tuple[BackupJob, ...] | None:
        """See the port."""
        if not self._known:
            return None
        found = sorted(self._indexed(key), key=lambda each: str(each["metadata"]["name"]))
        return tuple(self._seen(each) for each in found)

    def restoring(self, key: ClusterKey) -> tuple[Json, ...] | None:
        """The Jobs of a cluster that restore a backup; None: nobody knows."""
        return self._indexed(key, restoring=True) if self._known else None

    def _indexed(self, key: ClusterKey, *, restoring: bool = False) -> tuple[Json, ...]:
        jobs = self._jobs.indexed(key)
        return tuple(each for each in jobs if (RESTORES in each["metadata"].get("annotations", {})) is restoring)

    def _seen(self, raw: Json) -> BackupJob:
        meta = raw["metadata"]
        marks = meta.get("annotations", {})
        finished, trouble = end_of(raw)
        known = meta["uid"] in self._results
        return BackupJob(
            name=meta["name"],
            asked=marks.get(ASKED, ""),
            slot=marks.get(SLOT, ""),
            started=meta.get("creationTimestamp", ""),
            finished=finished if known else "",
            result=self._results.get(meta["uid"]),
            trouble="; ".join(each for each in (trouble, self._held_up.get(meta["uid"], "")) if each),
        )

    def waiting(self) -> tuple[ClusterKey, ...]:
        """The clusters with a Job that runs: nobody watches its pod, which may wait for a Secret or a node."""
        return tuple({cluster_of_job(each) for each in self._jobs.values() if _runs(each)})

    async def look(self, key: ClusterKey) -> None:
        """See the port."""
        news = False
        for job in self._indexed(key):
            uid = job["metadata"]["uid"]
            if uid in self._results:
                continue
            namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
            selector = f"batch.kubernetes.io/job-name={name}"
            pods = await self._client.list_all(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector)
            if end_of(job)[0]:
                self._results[uid] = result_of(pods["items"], BackupResult)
                news = True
            elif (why := held_up(pods["items"])) != self._held_up.get(uid, ""):
                self._held_up[uid] = why
                news = True
        if news:
            self._tell(key)

    async def start(
        self,
        cluster: CoordinatorCluster,
        pods: Iterable[PodInfo],
        asked: MusterBackup | None,
        slot: str,
        *,
        verify: bool,
    ) -> str:
        """See the port."""
        there = tuple(pods)
        addresses: Mapping[str, str] = {pod.name: pod.api_address for pod in there}
        arguments = run_arguments(cluster, addresses, self._wall() + 60 * GOOD_FOR_MINUTES, verify=verify)
        secured = any(pod.tls is not None for pod in there)
        declared = cluster.spec.backup
        assert declared is not None
        image = declared.image or self._default_image
        path, manifest = backup_job(cluster, asked, slot, image, arguments, secured=secured)
        name = str(manifest["metadata"]["name"])
        try:
            made = await self._client.create(path, manifest)
        except ConflictError:
            return f"Job {name} is there"  # a watch event brings it
        self.deliver(None, made)
        return f"made Job {name}"


def cluster_of_job(raw: Json) -> ClusterKey:
    meta = raw["metadata"]
    return ClusterKey(meta["namespace"], meta["labels"][BACKUP_LABEL])


def _runs(job: Json) -> bool:
    """True if it makes a backup, and has not ended."""
    return not end_of(job)[0] and RESTORES not in job["metadata"].get("annotations", {})


def held_up(pods: Iterable[Json]) -> str:
    """The reason why a pod of a Job does not begin, such as a Secret that is not there; "" if all do."""
    pending = (each["status"] for each in pods if each.get("status", {}).get("phase") == "Pending")
    found = (trouble_of(each) for each in pending)
    return next((why for why in found if why and why.split(":")[0] not in _BEGINS), "")


def end_of(job: Json) -> tuple[str, str]:
    """(when it ended, why it failed); "" where it has not."""
    for each in job.get("status", {}).get("conditions", ()):
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            failed = each["type"] == "Failed"
            return each["lastTransitionTime"], f"{each.get('reason')}: {each.get('message')}" if failed else ""
    return "", ""


def result_of(pods: Iterable[Json], kind: type[Result]) -> Result | None:
    """The result that the pod that was made last has left; what is no result is an error, such as that of an image."""
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["creationTimestamp"]), reverse=True):
        for container in pod.get("status", {}).get("containerStatuses", ()):
            state: dict[str, Any] = container.get("state", {}).get("terminated") or {}
            if not state:
                continue
            text = state.get("message", "").strip()
            try:
                return msgspec.json.decode(text, type=kind)
            except msgspec.MsgspecError:
                last = text.splitlines()[-1] if text else state.get("reason", "")
                return kind(error=f"exit code {state.get('exitCode')}: {last}")
    return None
