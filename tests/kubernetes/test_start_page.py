"""The commands of docs/start-kubernetes.md, as they stand there, in a namespace of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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


def test_commands_of_the_page_for_kubernetes_end_with_partitions_that_are_led(environment: dict[str, str]) -> None:
    page = (REPOSITORY / "docs" / "start-kubernetes.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```\n(.*?)^```", page, re.M | re.S)
    first, *commands = block.splitlines()
    assert first.startswith("make image ")  # the image is on the node before tests begin
    for command in commands:
        ran = subprocess.run(
            ["bash", "-c", command], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    assert len(re.findall(r"^offsetspartition\S* .* Led ", ran.stdout, re.M)) == 4, ran.stdout
