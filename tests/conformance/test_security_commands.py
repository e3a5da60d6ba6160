"""Kafka's own kafka-acls.sh and kafka-configs.sh against Muster: they show what is in force, and are told where it is
changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.kafka_broker import run_tool, why_no_kafka_yet
from tests.support.pod import SoloPod
from tests.support.scram import users_file

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
READ = {"principal": "User:alice", "operation": "READ", "resource": "GROUP", "name": "billing-", "pattern": "PREFIXED"}


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[SoloPod]:
    """Its second listener asks who clients are, so that there are users; the tools come in by the first."""
    (tmp_path / "acls.json").write_text(json.dumps({"acls": [READ]}))
    (tmp_path / "users.json").write_text(users_file({"alice": "pencil"}))
    config = [
        f"muster.acls.file={tmp_path / 'acls.json'}",
        "super.users=User:ANONYMOUS",
        f"muster.users.file={tmp_path / 'users.json'}",
        "listener.name.outside.sasl.enabled.mechanisms=SCRAM-SHA-512",
    ]

    class TwoListeners(SoloPod):
        program = (*SoloPod.program, "--listener", "outside=127.0.0.1:0")

    async with TwoListeners(tmp_path / "data", config=config) as pod:
        yield pod


async def run(pod: SoloPod, tool: str, *arguments: str) -> tuple[int, str]:
    return await run_tool(tool, "--bootstrap-server", f"127.0.0.1:{pod.kafka_port}", *arguments)


async def test_kafka_acls_lists_what_is_in_force_and_names_the_file(pod: SoloPod, tmp_path: Path) -> None:
    code, output = await run(pod, ACLS, "--list")
    assert code == 0, output
    assert "ResourcePattern(resourceType=GROUP, name=billing-, patternType=PREFIXED)" in output
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in output
    same = ("--add", "--allow-principal", "User:alice", "--operation", "READ", "--group", "billing-")
    code, output = await run(pod, ACLS, *same, "--resource-pattern-type", "prefixed")
    assert code == 0, output
    for arguments in (same, ("--remove", "--force", "--group", "billing-", "--resource-pattern-type", "prefixed")):
        _, output = await run(pod, ACLS, *arguments)
        assert "PolicyViolationException" in output
        assert str(tmp_path / "acls.json") in output
    assert json.loads((tmp_path / "acls.json").read_text()) == {"acls": [READ]}


async def test_kafka_configs_shows_users_and_names_the_file(pod: SoloPod, tmp_path: Path) -> None:
    code, output = await run(pod, CONFIGS, "--describe", "--entity-type", "users")
    assert code == 0, output
    assert "SCRAM credential configs for user-principal 'alice' are" in output
    assert "SCRAM-SHA-512=iterations=4096" in output
    change = ("--alter", "--entity-type", "users", "--entity-name", "eve")
    _, output = await run(pod, CONFIGS, *change, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=x]")
    assert "PolicyViolationException" in output
    assert str(tmp_path / "users.json") in output
