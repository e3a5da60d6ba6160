"""Jobs that make backups: what they are made of, that there is one for each, and what they leave."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.unit.kube.test_kube_certificates import Broken
from tests.unit.kube.test_manifests import cluster
from tests.unit.operator.storm_kube import NAMESPACE

from muster_cli.main import cli
from muster_operator.api.backup_result import MADE_BUT, BackupResult
from muster_operator.api.models import CoordinatorCluster, MusterBackup, Security
from muster_operator.kube.backup_manifests import backup_job, job_name, run_arguments
from muster_operator.kube.backups import KubeBackups, result_of
from muster_operator.kube.client import KubeError
from muster_operator.store.port import ClusterKey
from muster_operator.store.workload import PodInfo, PodPhase

SLOT = "2026-11-28T09:17:00Z"
S3 = {"bucket": "all", "endpoint": "http://store:7070", "region": "r", "credentialsSecret": "keys"}
PODS = tuple(PodInfo(f"a-{n}", n, f"u-{n}", f"10.0.0.{n}:9640", "", PodPhase.RUNNING) for n in range(2))
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def declared(**backup: Any) -> CoordinatorCluster:
    subject = cluster(backup={"store": {"claim": "volume"}, **backup})
    return replace(subject, metadata=replace(subject.metadata, namespace=NAMESPACE))


def job(subject: CoordinatorCluster, *, secured: bool = False) -> dict[str, Any]:
    return backup_job(subject, None, SLOT, "image", ["backup", "run"], secured=secured)[1]


def container(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return found


def env(made: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") or each["valueFrom"] for each in container(made)["env"]}


def asked(name: str = "now") -> MusterBackup:
    meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": meta, "spec": {"clusterRef": {"name": "a"}}}, MusterBackup)


# -- what a Job is ----------------------------------------------------------------------------------------------------


def test_store_on_a_volume_is_a_directory_of_the_cluster() -> None:
    made = job(declared())
    assert env(made) == {"MUSTER_BACKUP_STORE": "/backups/a"}
    assert {"name": "backups", "persistentVolumeClaim": {"claimName": "volume"}} in made["spec"]["template"]["spec"][
        "volumes"
    ]
    assert env(job(declared(store={"claim": "volume", "directory": "b"})))["MUSTER_BACKUP_STORE"] == "/backups/b"


def test_store_in_a_bucket_has_a_prefix_of_the_cluster_and_the_keys_of_a_secret() -> None:
    found = env(job(declared(store={"s3": S3})))
    assert found["MUSTER_BACKUP_STORE"] == f"s3://all/{NAMESPACE}/a"
    assert (found["AWS_ENDPOINT_URL"], found["AWS_REGION"]) == ("http://store:7070", "r")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert found[key] == {"secretKeyRef": {"name": "keys", "key": key}}
    assert env(job(declared(store={"s3": {**S3, "prefix": "x/y"}})))["MUSTER_BACKUP_STORE"] == "s3://all/x/y"


@pytest.mark.parametrize(
    ("more", "secret"),
    [({}, "a-reader-tls"), ({"podSecret": "p", "operatorSecret": "o", "readerSecret": "mine"}, "mine")],
)
def test_pods_that_ask_for_a_certificate_get_that_of_a_reader(more: dict[str, str], secret: str) -> None:
    subject = declared()
    security = msgspec.convert(more, Security)
    made = job(replace(subject, spec=replace(subject.spec, security=security)), secured=True)
    assert env(made)["MUSTER_TLS_DIR"] == "/etc/muster/tls"
    mounted = {each["name"]: each for each in made["spec"]["template"]["spec"]["volumes"]}
    assert mounted["tls"]["secret"] == {"secretName": secret, "defaultMode": 0o440}


def test_job_has_no_rights_and_is_no_pod_of_the_cluster() -> None:
    made = job(declared())
    pod = made["spec"]["template"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert container(made)["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "muster.dev/cluster" not in pod["metadata"]["labels"]
    assert made["metadata"]["ownerReferences"][0]["kind"] == "CoordinatorCluster"
    assert made["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [MADE_BUT]


def test_each_slot_and_each_musterbackup_has_one_name_however_long_that_of_the_cluster_is() -> None:
    subject = declared()
    assert job_name(subject, None, SLOT) == "a-backup-202611280917"
    assert job_name(subject, asked(), "") == "now-muster-backup"
    names = {
        job_name(replace(subject, metadata=replace(subject.metadata, name=name)), None, SLOT)
        for name in ("x" * 52, "x" * 51 + "y")
    }
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)


def test_command_takes_the_arguments_of_a_job() -> None:
    arguments = run_arguments(declared(keep=3, keepDays=2), {"a-0": "10.0.0.1:9640"}, 0.0, verify=True)
    arguments[-1] = "--result=/dev/null"
    done = CliRunner().invoke(cli, arguments, env={"MUSTER_BACKUP_STORE": "/nowhere/at/all", "MUSTER_TLS_DIR": ""})
    assert done.exit_code == 1, done.output
    result = msgspec.json.decode(done.output.splitlines()[0], type=BackupResult)
    assert "the addresses of the pods are too old" in result.error


# -- Jobs and the API server ------------------------------------------------------------------------------------------


class Site:
    def __init__(self) -> None:
        self.api = Broken()
        self.told: list[ClusterKey] = []

    def operator(self) -> KubeBackups:
        return KubeBackups(self.api.as_client(), "muster:default", self.told.append, lambda: 1000.0)

    async def pod(self, name: str, status: dict[str, Any]) -> None:
        """The pod of a Job, made if there is none, has that status."""
        found = self.api.objects.get("jobs", NAMESPACE, name)
        assert found is not None
        labels = {**found["spec"]["template"]["metadata"]["labels"], "batch.kubernetes.io/job-name": name}
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        there = self.api.objects.get("pods", NAMESPACE, f"{name}-x")
        if there is None:
            there = await self.api.create(pods, {"metadata": {"name": f"{name}-x", "labels": labels}, "spec": {}})
        await self.api.apply(f"{pods}/{name}-x/status", {**there, "status": status})

    async def end(self, name: str, message: str, *, kind: str = "Complete") -> None:
        """The Job ends, with a pod that has left `message`."""
        found = self.api.objects.get("jobs", NAMESPACE, name)
        assert found is not None
        await self.pod(name, {"containerStatuses": [{"state": {"terminated": {"exitCode": 0, "message": message}}}]})
        condition = {"type": kind, "status": "True", "lastTransitionTime": SLOT, "reason": "R", "message": "m"}
        await self.api.apply(f"{BATCH}/{name}", {**found, "status": {"conditions": [condition]}})


KEY = ClusterKey(NAMESPACE, "a")


async def test_job_is_made_once_and_its_result_is_read_when_it_has_ended() -> None:
    site = Site()
    operator = site.operator()
    assert operator.jobs(KEY) is None
    await operator.load(None)
    assert operator.jobs(KEY) == ()
    assert "made Job" in await operator.start(declared(), PODS, None, SLOT, verify=False)
    [running] = operator.jobs(KEY) or ()
    assert (running.slot, running.asked, running.finished) == (SLOT, "", "")
    other = site.operator()  # one that has not heard of it yet
    await other.load(None)
    assert "is there" in await other.start(declared(), PODS, None, SLOT, verify=False)

    await site.end(running.name, msgspec.json.encode(BackupResult("id", 5000)).decode())
    await operator.load(None)
    [ended] = operator.jobs(KEY) or ()
    assert ended.finished == ""  # nothing is decided before its result is read
    await operator.look(KEY)
    [ended] = operator.jobs(KEY) or ()
    assert (ended.finished, ended.result) == (SLOT, BackupResult("id", 5000))
    assert site.told[-1] == KEY


async def test_job_whose_pod_does_not_begin_says_why() -> None:
    """Nobody watches the pod, so the cluster is looked at again while the Job runs."""
    site = Site()
    operator = site.operator()
    await operator.load(None)
    assert operator.waiting() == ()
    await operator.start(declared(), PODS, None, SLOT, verify=False)
    assert operator.waiting() == (KEY,)
    [running] = operator.jobs(KEY) or ()
    for waits, says in (
        ({"reason": "ContainerCreating"}, ""),
        ({"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}, 'secret "keys" not found'),
    ):
        await site.pod(running.name, {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waits}}]})
        await operator.look(KEY)
        [shown] = operator.jobs(KEY) or ()
        assert (shown.finished, says in shown.trouble, bool(shown.trouble)) == ("", True, bool(says))
    assert site.told[-1] == KEY
    unschedulable = {"type": "PodScheduled", "reason": "Unschedulable", "message": 'claim "volume" not found'}
    await site.pod(running.name, {"phase": "Pending", "conditions": [unschedulable]})
    await operator.look(KEY)
    assert [each.trouble for each in operator.jobs(KEY) or ()] == ['claim "volume" not found']
    await site.pod(running.name, {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]})
    await operator.look(KEY)
    assert [each.trouble for each in operator.jobs(KEY) or ()] == [""]
    await site.end(running.name, msgspec.json.encode(BackupResult("id", 5000)).decode())
    await operator.load(None)
    assert operator.waiting() == ()


async def test_job_has_the_addresses_of_all_pods_and_the_time_until_which_they_are_good() -> None:
    site = Site()
    await site.operator().start(declared(image="mine"), PODS, asked(), "", verify=True)
    made = site.api.objects.get("jobs", NAMESPACE, "now-muster-backup")
    assert made is not None
    assert container(made)["image"] == "mine"
    arguments = container(made)["args"]
    assert {"--pod=a-0=10.0.0.0:9640", "--pod=a-1=10.0.0.1:9640", "--pods-until=1900", "--verify"} <= set(arguments)
    assert made["metadata"]["ownerReferences"][0]["kind"] == "MusterBackup"


async def test_operator_without_the_right_to_jobs_knows_of_none() -> None:
    class WithoutJobs(Broken):
        async def list_all(self, path: str, *, label_selector: str = "") -> dict[str, Any]:
            raise KubeError(403, f"GET {path}: 403 forbidden")

    operator = KubeBackups(WithoutJobs().as_client(), "muster:default", lambda key: None)
    await operator.load(None)
    assert operator.jobs(KEY) is None


@pytest.mark.parametrize(
    ("terminated", "result"),
    [
        ({"exitCode": 1, "message": '{"error":"e"}'}, BackupResult(error="e")),
        ({"exitCode": 137, "reason": "OOMKilled"}, BackupResult(error="exit code 137: OOMKilled")),
        (
            {"exitCode": 2, "message": "Usage:\nError: no such option\n"},
            BackupResult(error="exit code 2: Error: no such option"),
        ),
        (None, None),
    ],
)
def test_what_the_last_pod_has_left_is_the_result(terminated: dict[str, Any] | None, result: BackupResult) -> None:
    def pod(created: str, state: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"creationTimestamp": created}, "status": {"containerStatuses": [{"state": state}]}}

    first = pod("2026-01-01T00:00:00Z", {"terminated": {"exitCode": 1, "message": '{"error":"before"}'}})
    last = pod("2026-01-01T00:01:00Z", {"terminated": terminated} if terminated else {"running": {}})
    assert result_of([first, last], BackupResult) == (result if terminated else BackupResult(error="before"))
    assert result_of([], BackupResult) is None
