"""A cluster that begins from a backup: claims, Jobs and what is said, with an operator that can end at any step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.unit.kube.test_kube_certificates import Broken
from tests.unit.kube.test_manifests import cluster
from tests.unit.operator.fakes import topic
from tests.unit.operator.storm_kube import NAMESPACE

from muster_cli.main import cli
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_operator.api.conditions import Reason
from muster_operator.api.models import CoordinatorCluster, Layout, OffsetsTopic, Reshard, RestorePhase
from muster_operator.api.restore_result import RestoreResult
from muster_operator.kube.backups import KubeBackups
from muster_operator.kube.manifests import stateful_set
from muster_operator.kube.restore_manifests import CLAIM_UID, PLAN, RESTORES
from muster_operator.kube.restores import KubeRestores
from muster_operator.plan.observation import Observation
from muster_operator.plan.restore import Restoring, awaits_restore, restoring
from muster_operator.store.port import ClusterKey

ID = "20261128T091702Z-abcdef"
FOUND = RestoreResult(ID, 1_795_857_422_000, "kafka-id", 1000, 0, 6, 500_000, 3)
KEY = ClusterKey(NAMESPACE, "a")
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
TIME = "2026-11-28T09:20:00Z"


def declared(backup: str = "latest", at: str | None = None, **spec: Any) -> CoordinatorCluster:
    source = {"store": {"claim": "backups"}, "backup": backup, **({"at": at} if at else {})}
    subject = cluster(restoreFrom=source, **{"pods": 2, **spec})
    return replace(subject, metadata=replace(subject.metadata, namespace=NAMESPACE, uid="uid-a"))


class Site:
    """An API server, the controller of Jobs, and operators that come and go: each round has a new one."""

    def __init__(self, subject: CoordinatorCluster, partitions: int = 6) -> None:
        self.api = Broken()
        self.subject = subject
        self.topics: tuple[OffsetsTopic, ...] = (topic(partitions, cluster_name="a"),)
        self.told: list[ClusterKey] = []
        self.stateful_set: dict[str, Any] | None = None

    async def look(self) -> tuple[KubeRestores, Restoring | None]:
        jobs = KubeBackups(self.api.as_client(), "muster:default", self.told.append)
        await jobs.load(None)
        assert jobs.jobs(KEY) == ()  # none of them makes a backup
        restores = KubeRestores(
            self.api.as_client(), "muster:default", jobs, lambda key: self.stateful_set, self.told.append
        )
        await restores.look(self.subject)
        seen = Observation(NAMESPACE, "a", self.subject, topics=self.topics, restore=restores.facts(self.subject))
        return restores, restoring(seen)

    async def round(self, *, actions: int = 100) -> Restoring | None:
        """Look, write the status, and carry out as many actions; then the operator ends."""
        restores, found = await self.look()
        if found is not None:
            self.subject = replace(self.subject, status=replace(self.subject.status, restore=found.status))
            for each in found.actions[:actions]:
                await restores.carry_out(self.subject, each)
        return found

    def all(self, plural: str) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.api.objects.all(plural, NAMESPACE)}

    async def end(self, name: str, result: RestoreResult, *, kind: str = "Complete") -> None:
        """The Job ends, with a pod that has left the result."""
        job = self.all("jobs")[name]
        labels = {**job["spec"]["template"]["metadata"]["labels"], "batch.kubernetes.io/job-name": name}
        message = msgspec.json.encode(result).decode()
        status = {"containerStatuses": [{"state": {"terminated": {"exitCode": 0, "message": message}}}]}
        made = await self.api.create(PODS, {"metadata": {"name": f"{name}-x", "labels": labels}, "spec": {}})
        await self.api.apply(f"{PODS}/{name}-x/status", {**made, "status": status})
        condition = {"type": kind, "status": "True", "lastTransitionTime": TIME, "reason": "R", "message": "m"}
        await self.api.apply(f"{BATCH}/{name}", {**job, "status": {"conditions": [condition]}})

    async def forget_job(self, name: str) -> None:
        """Kubernetes removes a Job that ended some minutes ago, and its pod."""
        for path, raw in ((PODS, self.all("pods")[f"{name}-x"]), (BATCH, self.all("jobs")[name])):
            await self.api.delete(f"{path}/{raw['metadata']['name']}", raw["metadata"]["uid"])

    async def read(self) -> None:
        await self.round()
        await self.end("a-restore", FOUND)

    async def restore(self) -> None:
        """All of it, as it should go."""
        await self.read()
        while awaits_restore(self.subject):
            await self.round()
            for name, job in self.all("jobs").items():
                if "status" not in job:
                    await self.end(name, FOUND)


async def test_backup_is_read_then_each_volume_is_made_and_then_pods_may_start() -> None:
    site = Site(declared())
    first = await site.round()
    assert first is not None
    assert (first.verdict.reason, site.all("jobs").keys()) == (Reason.RESTORING, {"a-restore"})
    await site.end("a-restore", FOUND)
    assert not site.all("persistentvolumeclaims")
    for _ in range(2):  # claims, and Jobs for them
        await site.round()
    claims = site.all("persistentvolumeclaims")
    assert claims.keys() == {"data-a-0", "data-a-1"}
    jobs = {name: each["metadata"]["annotations"] for name, each in site.all("jobs").items()}
    assert {(each[RESTORES], each[CLAIM_UID]) for each in jobs.values()} == {
        ("-1", ""),
        ("0", claims["data-a-0"]["metadata"]["uid"]),
        ("1", claims["data-a-1"]["metadata"]["uid"]),
    }
    await site.end("a-restore-0", FOUND)
    await site.round()
    half = await site.round()
    assert half is not None
    assert (half.status.volumes, awaits_restore(site.subject)) == (1, True)
    await site.end("a-restore-1", FOUND)
    for _ in range(3):
        await site.round()
    status = site.subject.status.restore
    assert status is not None
    assert (status.phase, status.backup, status.volumes) == (RestorePhase.COMPLETED, ID, 2)
    assert status.taken == "2026-11-28T09:17:02Z"
    assert not awaits_restore(site.subject)
    assert await site.round() is None
    assert KEY in site.told


async def test_operator_that_ends_after_any_action_is_followed_by_one_that_goes_on() -> None:
    site = Site(declared())
    await site.read()
    for _ in range(30):
        await site.round(actions=1)
        site.subject = replace(site.subject, status=replace(site.subject.status, restore=None))  # it was not written
        for name, job in site.all("jobs").items():
            if "status" not in job:
                await site.end(name, FOUND)
                await site.forget_job(name) if name == "a-restore" else None
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, not awaits_restore(site.subject)) == (Reason.RESTORED, True)
    assert site.all("persistentvolumeclaims").keys() == {"data-a-0", "data-a-1"}
    assert site.all("jobs").keys() >= {"a-restore-0", "a-restore-1"}


async def test_failed_job_is_told_and_made_again_when_it_is_gone() -> None:
    site = Site(declared())
    await site.round()
    await site.end("a-restore", RestoreResult(error="the store has no backup"), kind="Failed")
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, found.actions, found.verdict.stalled) == (Reason.RESTORE_FAILED, (), True)
    assert "the store has no backup" in found.verdict.message
    await site.forget_job("a-restore")
    again = await site.round()
    assert again is not None
    assert "before: the store has no backup" in again.verdict.message
    assert "a-restore" in site.all("jobs")
    assert not site.all("persistentvolumeclaims")


async def test_claim_that_was_not_made_by_a_restore_is_never_touched() -> None:
    site = Site(declared())
    await site.api.create(CLAIMS, {"metadata": {"name": "data-a-7"}, "spec": {}})
    before = site.all("persistentvolumeclaims")
    for _ in range(3):
        found = await site.round()
        assert found is not None
        assert (found.verdict.reason, found.actions) == (Reason.RESTORE_REFUSED, ())
    assert "data-a-7" in found.verdict.message
    assert site.all("persistentvolumeclaims") == before
    assert not site.all("jobs")
    assert awaits_restore(site.subject)


async def test_cluster_that_is_created_again_goes_on_from_volumes_that_were_restored() -> None:
    """Its volumes are newer than the backup, which may not be there any more."""
    site = Site(declared())
    await site.restore()
    jobs = site.all("jobs")
    site.subject = replace(declared(), metadata=replace(site.subject.metadata, uid="uid-again"))
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, found.actions) == (Reason.RESTORED, ())
    assert not awaits_restore(site.subject)
    assert site.all("jobs") == jobs


@pytest.mark.parametrize("how", ["deletionTimestamp", "ownerReferences", "stateful set"])
async def test_volumes_that_are_about_to_go_do_not_count_as_restored(how: str) -> None:
    """The cluster was deleted with its volumes and created again at once: pods would begin empty."""
    site = Site(declared())
    await site.restore()
    if how == "stateful set":
        site.stateful_set = {"metadata": {"ownerReferences": [{"uid": "uid-a", "controller": True}]}}
    else:
        value: object = TIME if how == "deletionTimestamp" else [{"kind": "StatefulSet", "uid": "gone"}]
        for name, raw in site.all("persistentvolumeclaims").items():
            await site.api.apply(f"{CLAIMS}/{name}", {**raw, "metadata": {**raw["metadata"], how: value}})
    site.subject = replace(declared(), metadata=replace(site.subject.metadata, uid="uid-again"))
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, found.actions) == (Reason.RESTORING, ())
    assert "waits until" in found.verdict.message
    assert awaits_restore(site.subject)


async def test_cluster_that_is_declared_as_another_one_than_the_backups_is_refused_before_anything_is_made() -> None:
    site = Site(declared(clusterId="another"))
    await site.read()
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, found.actions) == (Reason.RESTORE_REFUSED, ())
    assert "spec.clusterId is another" in found.verdict.message
    assert not site.all("persistentvolumeclaims")


def numbers_given(site: Site) -> dict[str, list[str]]:
    """The options of each Job that name a number of partitions."""
    containers = {name: each["spec"]["template"]["spec"]["containers"][0] for name, each in site.all("jobs").items()}
    return {name: [arg for arg in each["args"] if "partitions=" in arg] for name, each in containers.items()}


@pytest.mark.parametrize("asked_by", ["partitions", "reshard"])
async def test_backup_is_resharded_to_the_numbers_that_are_declared(asked_by: str) -> None:
    """The new partitions are those that the command makes: the numbers begin above those of the backup."""
    site = Site(declared(), 12)
    if asked_by == "reshard":
        site.topics = (replace(site.topics[0], spec=replace(site.topics[0].spec, partitions=6, reshard=Reshard(12))),)
    transactions = topic(2, "of-transactions", "a")
    site.topics = (*site.topics, replace(transactions, spec=replace(transactions.spec, topic=TRANSACTIONS.name)))
    await site.restore()
    status = site.subject.status.restore
    assert status is not None
    assert (status.offsets, status.transactions) == (Layout(6, 12), Layout(500_003, 2))
    given = ["--partitions=12", "--transaction-partitions=2"]
    assert numbers_given(site) == {"a-restore": [], "a-restore-0": given, "a-restore-1": given}
    site.subject = replace(declared(), metadata=replace(site.subject.metadata, uid="uid-again"))
    found = await site.round()  # it has no status, so it says what is noted
    assert found is not None
    assert "re-sharded to 12 and 2 partitions, is on the volumes of 2 pods" in found.verdict.message


async def test_jobs_are_told_no_numbers_where_the_backup_has_those_that_are_declared() -> None:
    site = Site(declared())
    await site.restore()
    assert {*map(tuple, numbers_given(site).values())} == {()}
    status = site.subject.status.restore
    assert status is not None
    assert (status.offsets, status.transactions) == (Layout(0, 6), Layout(500_000, 3))


async def test_number_that_is_declared_when_volumes_are_being_made_is_refused_with_the_ways_out() -> None:
    site = Site(declared())
    late, site.topics = replace(site.topics[0], spec=replace(site.topics[0].spec, partitions=12)), ()
    await site.read()
    await site.round()
    site.topics = (late,)
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, found.actions) == (Reason.RESTORE_REFUSED, ())
    assert "OffsetsTopic t declares 12 partitions, and volumes with 6 are being made" in found.verdict.message
    assert f"kubectl -n {NAMESPACE} delete pvc data-a-0 data-a-1" in found.verdict.message


async def test_other_number_of_pods_or_other_backup_in_the_middle_is_refused() -> None:
    site = Site(declared())
    await site.read()
    await site.round()
    for other, told in ((declared(pods=3), "spec.pods is 3"), (declared("20261128T091702Z-abcdee"), "abcdee")):
        site.subject = replace(site.subject, spec=other.spec)
        found = await site.round()
        assert found is not None
        assert (found.verdict.reason, found.actions, told in found.verdict.message) == (
            Reason.RESTORE_REFUSED,
            (),
            True,
        )


async def test_moment_is_given_to_each_job_and_noted_on_the_claims() -> None:
    site = Site(declared(at=TIME))
    await site.restore()
    found = await site.round()
    assert found is None
    jobs = {name: each["spec"]["template"]["spec"]["containers"][0]["args"] for name, each in site.all("jobs").items()}
    assert {name: {f"--at={TIME}", "--backup=latest"} & {*each} for name, each in jobs.items()} == {
        "a-restore": {f"--at={TIME}", "--backup=latest"},
        "a-restore-0": {f"--at={TIME}"},
        "a-restore-1": {f"--at={TIME}"},
    }
    site.subject = replace(declared(), metadata=replace(site.subject.metadata, uid="uid-again"))
    found = await site.round()  # it has no status, so it says what is noted
    assert found is not None
    assert f"the moment {TIME} between two backups ({ID}) is on the volumes" in found.verdict.message


@pytest.mark.parametrize(("before", "after"), [(TIME, None), (None, TIME), (TIME, "2026-11-28T09:20:01Z")])
async def test_other_moment_in_the_middle_is_refused(before: str | None, after: str | None) -> None:
    """Volumes of two moments would be no cluster."""
    site = Site(declared(at=before))
    await site.read()
    await site.round()
    site.subject = replace(site.subject, spec=declared(at=after).spec)
    found = await site.round()
    assert found is not None
    assert (found.verdict.reason, found.actions) == (Reason.RESTORE_REFUSED, ())
    assert f"spec.restoreFrom.at is {after or 'absent'}" in found.verdict.message


async def test_job_of_a_claim_that_was_deleted_does_not_count_for_its_successor() -> None:
    site = Site(declared(pods=1))
    await site.read()
    await site.round()
    await site.round()
    await site.end("a-restore-0", FOUND)
    claim = site.all("persistentvolumeclaims")["data-a-0"]
    await site.api.delete(f"{CLAIMS}/data-a-0", claim["metadata"]["uid"])
    for _ in range(3):
        await site.round()
    assert PLAN in site.all("persistentvolumeclaims")["data-a-0"]["metadata"]["annotations"]
    assert awaits_restore(site.subject)
    await site.forget_job("a-restore-0")
    await site.round()
    await site.end("a-restore-0", FOUND)
    for _ in range(3):
        await site.round()
    assert not awaits_restore(site.subject)


async def test_what_the_api_server_refuses_is_told() -> None:
    site = Site(declared())
    await site.read()
    restores, found = await site.look()
    assert found is not None
    site.api.refused = "POST /api/v1"
    for each in found.actions:
        await restores.carry_out(site.subject, each)
    await restores.look(site.subject)
    facts = restores.facts(site.subject)
    told = restoring(Observation(NAMESPACE, "a", site.subject, restore=facts))
    assert told is not None
    assert (told.verdict.reason, "403 forbidden" in told.verdict.message) == (Reason.RESTORE_FAILED, True)
    restores.forget(KEY)
    assert (restores.facts(site.subject), restores.waiting()) == (None, ())


async def test_suspended_or_hibernated_cluster_waits() -> None:
    for spec in ({"suspend": True}, {"hibernate": True}):
        site = Site(declared(**spec))
        found = await site.round()
        assert found is not None
        assert (found.verdict.reason, found.actions) == (Reason.RESTORE_WAITS, ())


async def test_volumes_are_those_that_the_pods_mount() -> None:
    """Same names, size, labels, directory and user as of the StatefulSet; the arguments are those of the command."""
    site = Site(declared())
    await site.read()
    await site.round()
    await site.round()
    pods = stateful_set(site.subject, "image")["spec"]
    [template] = pods["volumeClaimTemplates"]
    [coordinator] = pods["template"]["spec"]["containers"]
    [directory] = [each["value"] for each in coordinator["env"] if each["name"] == "MUSTER_DATA_DIR"]
    for number in range(2):
        made = site.all("persistentvolumeclaims")[f"{template['metadata']['name']}-a-{number}"]
        assert made["spec"] == template["spec"]
        assert made["metadata"]["labels"] == pods["selector"]["matchLabels"]
        assert "ownerReferences" not in made["metadata"]
        pod = site.all("jobs")[f"a-restore-{number}"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert {f"--volume={directory}", f"--pod={number}", "--pods=2", f"--backup={ID}"} <= {*container["args"]}
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        [volume] = [each for each in pod["volumes"] if each["name"] == mounted["/var/lib/muster"]]
        assert volume["persistentVolumeClaim"]["claimName"] == f"data-a-{number}"
        for field in ("runAsUser", "runAsGroup", "fsGroup", "runAsNonRoot"):
            assert pod["securityContext"][field] == pods["template"]["spec"]["securityContext"][field]
        env = {"MUSTER_BACKUP_STORE": "/nowhere/at/all"}
        arguments = [each for each in container["args"] if not each.startswith("--result")]
        done = CliRunner().invoke(cli, arguments, env=env)
        assert (done.exit_code, "the store has no" in done.output or ID in done.output) == (1, True), done.output
