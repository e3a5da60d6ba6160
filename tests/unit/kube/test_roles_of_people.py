"""The roles muster-view and muster-operate: what `kubectl muster` needs, and no Secrets."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.support.recorded_clusters import NAMESPACE, RecordedServer, recorded
from tests.support.rights import Right, granted
from tests.unit.cli.drive.site import say, site

from muster_cli.oncall.bundle import collect
from muster_cli.oncall.facts import read_facts
from muster_cli.oncall.kubernetes import KubernetesReader

REPOSITORY = Path(__file__).parents[3]


def rights(role: str) -> set[Right]:
    written = yaml.safe_load_all((REPOSITORY / "config" / "roles.yaml").read_text(encoding="utf-8"))
    return granted(each for each in written if each["metadata"]["name"] == role)


def verbs(role: str) -> set[tuple[str, str]]:
    return {(resource, verb) for _, resource, verb, _ in rights(role)}


async def test_view_may_read_what_status_reads() -> None:
    server = RecordedServer(recorded("healthy"))
    await KubernetesReader(server.client, NAMESPACE).look()
    assert ("offsetspartitions", "list") in server.asked
    assert server.asked - verbs("muster-view") == set()


async def test_view_may_read_what_doctor_reads() -> None:
    server = RecordedServer(recorded("healthy"))
    reader = KubernetesReader(server.client, NAMESPACE)
    (seen,) = await reader.look()
    await read_facts(reader, seen)
    assert {("storageclasses", "list"), ("nodes", "list"), ("networkpolicies", "list")} <= server.asked
    assert server.asked - verbs("muster-view") == set()


async def test_view_may_read_what_is_in_a_bundle_but_for_metrics() -> None:
    """Who may get pods/proxy reaches all ports of pods, so neither role has that."""
    server = RecordedServer(recorded("healthy"))
    await collect(KubernetesReader(server.client, NAMESPACE), 0.0, 10)
    assert {("pods/log", "get"), ("events", "list")} <= server.asked
    assert server.asked - verbs("muster-view") == {("pods/proxy", "get")}


def test_view_changes_nothing_and_neither_role_reads_secrets() -> None:
    assert {verb for _, verb in verbs("muster-view")} == {"get", "list", "watch"}
    resources = {resource for role in ("muster-view", "muster-operate") for resource, _ in verbs(role)}
    assert len(resources) > 15
    assert not resources & {"secrets", "*"}


async def test_who_may_view_and_operate_may_do_all_that_the_commands_ask_for(tmp_path: Path) -> None:
    async with site(tmp_path) as (kubernetes, typed):
        for command in (
            ("move", "2", "orders-0"),
            ("move", "2", "--undo"),
            ("drain", "orders-2"),
            ("drain", "orders-2", "--undo"),
            ("fence", "orders-2"),
            ("restart", "--all"),
        ):
            code, _, err = await typed.run(*command, "-n", "shop", "--timeout", "0")
            assert code == 0, err
        say(kubernetes, "orders-0", "Stalled", "NoMajority", """one; do: '{"spec":{"allowDataLoss":3}}'""")
        code, _, err = await typed.run("allow-data-loss", "0", "--yes", "-n", "shop", "--timeout", "0")
        assert code == 0, err
        asked = {(plural, method) for method, plural in kubernetes.requests}
    allowed = verbs("muster-view") | verbs("muster-operate")
    assert ("coordinatorclusters", "PATCH") in asked
    assert ("offsetspartitions", "PATCH") in asked
    assert {(plural, {"GET": "get", "PATCH": "patch"}[method]) for plural, method in asked} <= allowed


def test_operate_patches_and_replaces_pods_makes_consumer_groups_alone_and_deletes_nothing_of_ours() -> None:
    assert ("offsetspartitions", "patch") in verbs("muster-operate")
    assert ("pods", "delete") in verbs("muster-operate")
    of_ours = {verb for group, _, verb, _ in rights("muster-operate") if group == "muster.dev"}
    assert of_ours == {"get", "patch", "update", "create"}
    assert {resource for _, resource, verb, _ in rights("muster-operate") if verb == "create"} == {
        "consumergroups",
        "pods/eviction",
    }
