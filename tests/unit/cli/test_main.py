from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster_cli.main import cli


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    return result.exit_code, result.output


def test_version_is_that_of_the_distribution() -> None:
    assert run("--version") == (0, f"muster, version {version('muster')}\n")


@pytest.mark.parametrize("arguments", [(), ("local",), ("local", "up"), ("local", "status"), ("demo",)])
def test_help_is_there_for_every_command(arguments: tuple[str, ...]) -> None:
    code, output = run(*arguments, "--help")
    assert code == 0
    assert output.startswith("Usage:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--replication-factor", "2"), "--replication-factor"),
        (("--pods", "1", "--replication-factor", "3"), "there are 1 pods"),
        (("--pods", "0"), "--pods"),
        (("--partitions", "1001"), "--partitions"),
        (("--topic", "orders"), "NAME:PARTITIONS"),
        (("--config", "no.such.setting=1"), "unknown setting"),
        (("--base-port", "70000"), "--base-port"),
        (("--frobnicate",), "No such option"),
    ],
)
def test_wrong_usage_of_up_exits_with_2_and_says_what(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    code, output = run("local", "up", "--data-dir", str(tmp_path), *arguments)
    assert (code, message in output) == (2, True), output


def test_status_of_a_directory_where_nothing_runs_exits_with_1_and_says_so(tmp_path: Path) -> None:
    code, output = run("local", "status", "--data-dir", str(tmp_path))
    assert code == 1
    assert f"nothing runs on {tmp_path}" in output


def test_demo_without_its_client_library_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in [name for name in sys.modules if name.startswith("muster_cli.demo.")]:
        monkeypatch.delitem(sys.modules, name)
    code, output = run("demo")
    assert (code, "the demo needs confluent_kafka" in output) == (1, True)


def test_help_loads_neither_operator_nor_clients() -> None:
    """Start-up of the command stays quick: heavy modules load in the commands that use them."""
    heavy = "{'aiohttp', 'rich', 'muster_operator', 'confluent_kafka'}"
    code = f"import sys, muster_cli.main; print({{name.split('.')[0] for name in sys.modules}} & {heavy})"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
