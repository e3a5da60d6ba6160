"""`muster backup` and `muster restore`: wrong usage, and that the CronJob in config/backup asks for what exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from muster_cli.backup.command import create, prune
from muster_cli.backup.follow_command import follow
from muster_cli.main import cli

FOLDER = Path(__file__).parents[4] / "config" / "backup"
OBJECTS: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((FOLDER / "cronjob.yaml").read_text())
}
POD = OBJECTS["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("backup", "create", "--data-dir", "d"),
        ("backup", "create", "--store", "s"),
        ("backup", "create", "--store", "s", "--data-dir", "d", "--cluster", "c"),
        ("backup", "prune", "--store", "s", "--keep", "0"),
        ("backup", "lag", "--store", "s"),
        ("backup", "follow", "--store", "s", "--data-dir", "d", "--cluster", "c"),
        ("backup", "follow", "--store", "s", "--data-dir", "d", "--every", "1"),
        ("backup", "follow", "--store", "s", "--data-dir", "d", "--metrics-listen", "9643"),
        ("backup", "verify"),
        ("restore", "--store", "s"),
        ("restore", "--store", "s", "--data-dir", "d", "--volume", "v", "--pod", "0"),
        ("restore", "--store", "s", "--volume", "v", "--backup", "b"),
        ("restore", "--store", "s", "--volume", "v", "--pod", "0"),
        ("restore", "--store", "s", "--data-dir", "d", "--pod", "0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_empty_store_and_cluster_that_does_not_run_are_said(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "store"))
    assert CliRunner().invoke(cli, ["backup", "list", *store]).output == "no backup\n"
    done = CliRunner().invoke(cli, ["backup", "create", *store, "--data-dir", str(tmp_path)])
    assert (done.exit_code, "nothing runs on" in done.output) == (1, True)
    done = CliRunner().invoke(cli, ["restore", *store, "--data-dir", str(tmp_path / "new")])
    assert (done.exit_code, "the store has no backup" in done.output) == (1, True)


def test_directory_of_certificates_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_TLS_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {}}]}"
    )
    arguments = ["backup", "create", "--store", str(tmp_path / "store"), "--cluster", "muster"]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, f"MUSTER_TLS_DIR {tmp_path / 'none'}: " in done.output) == (1, True), done.output


def test_cronjob_calls_the_commands_with_the_rights_that_they_need() -> None:
    [creates], [prunes] = POD["initContainers"], POD["containers"]
    assert (creates["command"], creates["args"][:2]) == (["muster"], ["backup", "create"])
    assert (prunes["command"], prunes["args"][:2]) == (["muster"], ["backup", "prune"])
    mounts = {each["mountPath"]: each["name"] for each in creates["volumeMounts"]}
    env = {each["name"]: each["value"] for each in creates["env"]}
    store = ["--store", env["MUSTER_BACKUP_STORE"]]
    assert create.make_context("create", [*creates["args"][2:], *store]).params["cluster"] == "muster"
    assert prune.make_context("prune", [*prunes["args"][2:], *store]).params["keep"] == 24
    assert mounts[env["MUSTER_BACKUP_STORE"]] == "backups"
    assert mounts[env["MUSTER_TLS_DIR"]] == "tls"
    assert {each["name"] for each in POD["volumes"]} == set(mounts.values())
    [pods] = OBJECTS["Role"]["rules"]
    assert (pods["resources"], pods["verbs"]) == (["pods"], ["list"])
    assert POD["serviceAccountName"] == OBJECTS["ServiceAccount"]["metadata"]["name"]


def test_follower_calls_the_command_and_prometheus_finds_its_port() -> None:
    deployment = yaml.safe_load((FOLDER / "follower.yaml").read_text())
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["command"][-1] == "muster"
    env = {each["name"]: each["value"] for each in container["env"]}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert container["args"][:2] == ["backup", "follow"]
    arguments = [*container["args"][2:], "--store", env["MUSTER_BACKUP_STORE"]]
    asked = follow.make_context("follow", arguments).params
    assert {name: asked[name] for name in ("cluster", "namespace")} == {"cluster": "muster", "namespace": "default"}
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", asked["metrics_listen"][1])
    assert mounts[env["MUSTER_BACKUP_STORE"]] == "backups"
    assert mounts[env["MUSTER_TLS_DIR"]] == "tls"
    assert mounts[str(Path(env["KUBECONFIG"]).parent)] == "kubeconfig"
    assert {each["name"] for each in pod["spec"]["volumes"]} == set(mounts.values())
    monitors = yaml.safe_load_all((FOLDER.parent / "monitoring" / "pod-monitors.yaml").read_text())
    (wanted,) = next(each for each in monitors if each)["spec"]["selector"]["matchExpressions"]
    labels = pod["metadata"]["labels"]
    assert labels[wanted["key"]] in wanted["values"]
    assert labels["app.kubernetes.io/part-of"] == "muster"
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
