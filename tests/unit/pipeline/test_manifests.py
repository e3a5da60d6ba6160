"""config/pipeline: what the manifests name exists, and the command lines in them are ones that the command takes."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from kubeflow_spark_api.models import SparkV1beta2SparkApplication

from muster_cli.main import cli
from muster_operator.api.models import CoordinatorCluster, ObjectMeta
from muster_operator.kube.manifests import API_PORT, headless_service_name, reader_secret_name
from muster_pipeline.source.session import SUBMITTED

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / "config" / "pipeline"
OBJECTS: dict[str, list[dict[str, Any]]] = {
    path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))
}
KUBEFLOW = OBJECTS["spark-application-kubeflow.yaml"][0]
APACHE = OBJECTS["spark-application-apache.yaml"][0]
CRONJOB = OBJECTS["cronjob.yaml"][0]
POD = CRONJOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]
TEMPLATE, SUBMIT = OBJECTS["spark-submit.yaml"]
SUBMIT_POD = SUBMIT["spec"]["jobTemplate"]["spec"]["template"]["spec"]
PROGRAM = SUBMIT_POD["containers"][0]["args"].index("/usr/local/bin/muster.py")
ACCOUNT = "muster-pipeline"
EXECUTOR_VARIABLES = [
    *("EXECUTOR_MEMORY", "DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID"),
    *("EXECUTOR_POD_IP", "RESOURCE_PROFILE_ID", "EXECUTOR_POD_NAME"),
]
CLAIM = OBJECTS["tables.yaml"][0]["metadata"]["name"]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The parameters of `muster ARGUMENTS`. Fails on anything that the command does not take."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    return command.make_context(None, list(arguments), parent=context).params


@pytest.mark.parametrize(
    ("arguments", "master"),
    [
        (POD["containers"][0]["args"], "local[*]"),
        (SUBMIT_POD["containers"][0]["args"][PROGRAM + 1 :], SUBMITTED),
        (KUBEFLOW["spec"]["arguments"], SUBMITTED),
        (APACHE["spec"]["driverArgs"], SUBMITTED),
    ],
    ids=["cronjob", "spark-submit", "kubeflow", "apache"],
)
def test_command_line_is_one_that_the_command_takes(arguments: list[str], master: str) -> None:
    parameters = parsed(arguments)
    assert parameters["master"] == master
    assert parameters["output"] == Path("/tables/muster")
    pods = [f"muster-{ordinal}" for ordinal in range(3)]
    assert list(parameters["logs"]) == [f"https://{pod}.{headless_service_name('muster')}:{API_PORT}" for pod in pods]


def test_all_run_as_the_account_that_has_the_rights_and_write_to_the_claim() -> None:
    account, role, binding = OBJECTS["rbac.yaml"]
    assert account["metadata"]["name"] == ACCOUNT
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert (
        POD["serviceAccountName"]
        == SUBMIT_POD["serviceAccountName"]
        == KUBEFLOW["spec"]["driver"]["serviceAccount"]
        == ACCOUNT
    )
    conf = APACHE["spec"]["sparkConf"]
    assert conf["spark.kubernetes.authenticate.driver.serviceAccountName"] == ACCOUNT
    assert POD["volumes"][0]["persistentVolumeClaim"]["claimName"] == CLAIM
    assert KUBEFLOW["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == CLAIM
    for role_of_pod in ("driver", "executor"):
        prefix = f"spark.kubernetes.{role_of_pod}.volumes.persistentVolumeClaim.tables"
        assert conf[f"{prefix}.options.claimName"] == CLAIM
        assert conf[f"{prefix}.mount.path"] == "/tables"
        assert KUBEFLOW["spec"][role_of_pod]["volumeMounts"] == [{"name": "tables", "mountPath": "/tables"}]


def test_all_show_the_certificate_of_a_reader_of_the_cluster() -> None:
    secret = reader_secret_name(CoordinatorCluster(ObjectMeta("muster")))
    for pod in (POD, SUBMIT_POD):
        assert {"name": "tls", "secret": {"secretName": secret}} in pod["volumes"]
        environment = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
        assert environment["MUSTER_TLS_DIR"] == mounts["tls"]
        assert environment["MUSTER_CLUSTER"] == "$(POD_NAMESPACE)/muster"
    submitted = dict(
        each.removeprefix("--conf=").split("=", 1) for each in SUBMIT_POD["containers"][0]["args"][:PROGRAM]
    )
    for conf in (KUBEFLOW["spec"]["sparkConf"], APACHE["spec"]["sparkConf"], submitted):
        directory = conf[f"spark.kubernetes.executor.secrets.{secret}"]
        assert conf["spark.executorEnv.MUSTER_TLS_DIR"] == directory
        assert conf["spark.executorEnv.MUSTER_CLUSTER"].endswith("/muster")


def test_every_pod_may_write_to_a_volume_of_its_group_and_is_one_that_restricted_namespaces_admit() -> None:
    executor = yaml.safe_load(TEMPLATE["data"]["executor.yaml"])["spec"]
    apache = [APACHE["spec"][f"{role}Spec"]["podTemplateSpec"]["spec"] for role in ("driver", "executor")]
    pods = [(each["securityContext"], each["containers"][0]["securityContext"]) for each in (POD, SUBMIT_POD, executor)]
    pods += [(each["securityContext"], each["containers"][0]["securityContext"]) for each in apache]
    for role in ("driver", "executor"):
        spec = KUBEFLOW["spec"][role]
        pods.append((spec["podSecurityContext"] | spec["securityContext"], spec["securityContext"]))
    for pod, container in pods:
        assert pod["fsGroup"] == 10001
        assert pod["runAsNonRoot"] is True
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["allowPrivilegeEscalation"] is False
        assert container["capabilities"] == {"drop": ["ALL"]}


def test_kubeflow_application_has_only_fields_that_its_operator_knows() -> None:
    application = SparkV1beta2SparkApplication.from_dict(KUBEFLOW)
    assert application is not None
    assert application.to_dict() == KUBEFLOW


def test_spark_applications_have_what_their_operators_require() -> None:
    assert (KUBEFLOW["apiVersion"], KUBEFLOW["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    assert KUBEFLOW["spec"].keys() >= {
        "type",
        "mode",
        "image",
        "mainApplicationFile",
        "sparkVersion",
        "driver",
        "executor",
    }
    assert (APACHE["apiVersion"], APACHE["kind"]) == ("spark.apache.org/v1", "SparkApplication")
    assert APACHE["spec"].keys() >= {"pyFiles", "runtimeVersions"}
    assert all(isinstance(value, str) for value in APACHE["spec"]["sparkConf"].values())
    assert KUBEFLOW["spec"]["sparkVersion"] == APACHE["spec"]["runtimeVersions"]["sparkVersion"] == version("pyspark")
    image = APACHE["spec"]["sparkConf"]["spark.kubernetes.container.image"]
    assert image == KUBEFLOW["spec"]["image"]
    assert f"PIPELINE={image}\n" in (REPOSITORY / "hack" / "image").read_text()


def test_spark_applications_name_a_program_that_spark_submit_takes_for_python() -> None:
    program = KUBEFLOW["spec"]["mainApplicationFile"]
    assert program == APACHE["spec"]["pyFiles"] == "local:///usr/local/bin/muster.py"
    assert "ln -s muster /usr/local/bin/muster.py" in (REPOSITORY / "Dockerfile.pipeline").read_text()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, for kustomize")
def test_kustomization_renders_the_cronjob_with_the_image() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    rendered = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert rendered.keys() == {"ServiceAccount", "Role", "RoleBinding", "PersistentVolumeClaim", "CronJob"}
    template = rendered["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == KUBEFLOW["spec"]["image"]


def test_entrypoint_gives_a_driver_to_spark_submit_and_an_executor_to_the_backend(tmp_path: Path) -> None:
    for name in ("bin/spark-submit", "java"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('#!/bin/sh\necho "$0" "$@"\n')
        file.chmod(0o755)
    spark = {
        "SPARK_HOME": str(tmp_path),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
        "SPARK_JAVA_OPT_10": "-Dlast=1",
        "SPARK_JAVA_OPT_9": "-Dfirst=1 with space",
        **{f"SPARK_{name}": name.lower() for name in EXECUTOR_VARIABLES},
    }

    def run(*arguments: str) -> str:
        command = [str(FOLDER / "entrypoint"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=spark).stdout

    driver = run("driver", "--class", "x")
    assert driver.startswith(f"{tmp_path}/bin/spark-submit --conf spark.driver.bindAddress=10.0.0.1")
    assert driver.endswith("--deploy-mode client --class x\n")
    executor = run("executor")
    assert executor.startswith(f"{tmp_path}/java -Dfirst=1 with space -Dlast=1 -Xmsexecutor_memory")
    assert all(name.lower() in executor for name in EXECUTOR_VARIABLES)
    assert run("echo", "as it is") == "as it is\n"
