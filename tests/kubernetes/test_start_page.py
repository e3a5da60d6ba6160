"""The commands of docs/start-kubernetes.md, as they stand there, in a namespace of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kube import REPOSITORY, install_operator, kubectl

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]


@pytest.fixture
def environment(operator: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a person whose kubeconfig names an empty namespace."""
    install_operator()  # tests of the store may have sent it away since
    name, config = f"start-{uuid.uuid4().hex[:8]}", tmp_path / "kubeconfig"
    shutil.copy(os.environ["KUBECONFIG"], config)
    kubectl("create", "namespace", name)
    kubectl("config", "set-context", "--current", f"--namespace={name}", "--kubeconfig", str(config))
    yield {**os.environ, "KUBECONFIG": str(config)}
    kubectl("delete", "namespace", name, "--wait=false")


def test_commands_of_the_page_for_kubernetes_as_a_new_user_runs_them(
    environment: dict[str, str], tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "start-kubernetes.md").read_text(encoding="utf-8")
    (_, starts), (language, client), (_, dies) = re.findall(r"^```(\w*)\n(.*?)^```", page, re.M | re.S)
    first, *commands = starts.splitlines()
    assert first.startswith("make image ")  # the image is on the node before tests begin
    for command in commands:
        said = run(command, REPOSITORY, environment)
    assert len(re.findall(r"^offsetspartition\S* .* Led ", said, re.M)) == 4, said

    assert language == "python"
    (tmp_path / "client.py").write_text(client, encoding="utf-8")
    said = run(dies, tmp_path, environment)
    (before, epoch), (after, higher) = re.findall(r"Pod (\S+) leads it in epoch (\d+)", said)
    assert "The group billing hashes to number 1 of 4." in said
    assert int(higher) > int(epoch) + (before == after), "another leads, or the one of before leads once more"
    lines = (tmp_path / "committed.txt").read_text(encoding="utf-8").splitlines()
    committed = [int(line.split()[-1]) for line in lines if " committed " in line]
    assert len(committed) > 10, lines
    assert lines[-1].endswith(f" committed {committed[-1]}"), "the client goes on"
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        assert any(name.endswith("status.txt") for name in bundle.getnames()), bundle.getnames()


def run(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """What they write. All of them have to end well."""
    path = f"{Path(sys.executable).parent}:{environment['PATH']}"  # with `muster` of this checkout, also for kubectl
    ran = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, f"{commands}\n{ran.stdout}{ran.stderr}"
    return ran.stdout
