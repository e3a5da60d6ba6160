"""`muster reshard`: which options go together, and that the Job in config/reshard asks for something that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from muster_cli.main import cli
from muster_cli.reshard.command import reshard
from muster_cli.reshard.copying import CHUNK_BYTES, chunks
from muster_coordinator.podapi.reshard import MAX_IMPORT_BYTES
from muster_coordinator.records.batch import encode_batch, iter_batches
from muster_operator.api.models import OffsetsTopic

JOB = Path(__file__).parents[4] / "config" / "reshard" / "job.yaml"
OBJECTS: dict[str, dict[str, Any]] = {each["kind"]: each for each in yaml.safe_load_all(JOB.read_text())}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--partitions", "12"),
        ("logs", "--partitions", "12"),
        ("logs", "--partitions", "12", "--abort", "--dry-run"),
        ("--data-dir", "d"),
        ("--data-dir", "d", "--partitions", "12", "--abort"),
        ("--data-dir", "d", "--drop-old", "--abort"),
        ("logs", "--partitions", "12", "--drop-old", "--dry-run"),
        ("--data-dir", "d", "--cluster", "c", "--partitions", "12"),
        ("--data-dir", "d", "--partitions", "12", "logs"),
        ("--cluster", "c", "--partitions", "12", "--output", "new"),
        ("--cluster", "c", "--partitions", "0"),
        ("logs", "--partitions", "3", "--topic", "__transaction_state", "--dry-run"),
        ("--data-dir", "d", "--partitions", "3", "--topic", "orders"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(cli, ["reshard", *arguments]).exit_code == 2


def test_nothing_runs_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["reshard", "--data-dir", str(tmp_path), "--partitions", "12"])
    assert done.exit_code == 1
    assert "nothing runs on" in done.output


def test_job_calls_the_command_with_the_rights_that_it_needs() -> None:
    pod = OBJECTS["Job"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["muster"]
    assert container["args"][0] == "reshard"
    parsed = reshard.make_context("reshard", container["args"][1:]).params
    assert (parsed["cluster"], parsed["partitions"]) == ("muster", 12)
    assert str(parsed["work_dir"]) == container["volumeMounts"][0]["mountPath"]
    [topics, _, pods] = OBJECTS["Role"]["rules"]
    assert topics["resources"] == [OffsetsTopic.plural]
    assert topics["verbs"] == ["list", "update"]
    assert (pods["resources"], pods["verbs"]) == (["pods"], ["list"])
    account = OBJECTS["ServiceAccount"]["metadata"]["name"]
    assert account == pod["serviceAccountName"] == OBJECTS["RoleBinding"]["subjects"][0]["name"]


def test_log_is_sent_in_whole_batches_that_a_pod_takes(tmp_path: Path) -> None:
    batches = [
        encode_batch([(b"k", b"v" * 40_000)] * 2, base_offset=2 * n, leader_epoch=0, timestamp_ms=1) for n in range(20)
    ]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches[:9]))
    (tmp_path / f"{18:020d}.log").write_bytes(b"".join(batches[9:]))
    sent = list(chunks(tmp_path))
    assert b"".join(data for _, _, data, _ in sent) == b"".join(batches)
    assert [last for *_, last in sent] == [False] * (len(sent) - 1) + [True]
    assert len(sent) > 2
    assert CHUNK_BYTES < MAX_IMPORT_BYTES
    position = 0
    for start, end, data, _ in sent:
        found = list(iter_batches(data))
        assert (start, found[0].base_offset, found[-1].end_offset) == (position, position, end)
        assert len(data) <= CHUNK_BYTES
        position = end


def test_empty_log_is_sent_as_well(tmp_path: Path) -> None:
    assert list(chunks(tmp_path)) == [(0, 0, b"", True)]
