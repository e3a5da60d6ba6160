"""`muster groups`: what is made of the answers of brokers, and which brokers are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType
from tests.support.recorded_clusters import NAMESPACE, RecordedServer, recorded

from muster_cli.errors import CliError, CliUsageError
from muster_cli.main import cli
from muster_cli.oncall.asking import bootstrap_of
from muster_cli.oncall.groups import GroupLine, GroupReport, Member, build_group, group_list, group_screen
from muster_cli.oncall.kafka import KafkaGroups, read_properties
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.seen import Seen, Unreachable
from muster_operator.kube.client import Json

LINE = GroupLine("billing", "STABLE", "CLASSIC")


def member(client: str, *assigned: str) -> Member:
    return Member(f"{client}-id", client, "10.0.0.1", "", assigned)


def report() -> GroupReport:
    members = {member("two", "orders-1"): [("orders", 1)], member("one", "orders-0"): [("orders", 0)]}
    committed = {("orders", 0): 42, ("orders", 2): 50, ("gone", 0): 7}
    ends = {("orders", 0): 50, ("orders", 1): 9, ("orders", 2): 40}
    return build_group(LINE, "range", "pod:9092", members, committed, ends)


def test_lag_is_that_of_partitions_with_a_commit_and_a_known_end_and_never_negative() -> None:
    told = report()
    assert [
        (each.topic, each.partition, each.offset, each.end, each.lag, each.client_id) for each in told.positions
    ] == [
        ("gone", 0, 7, None, None, ""),
        ("orders", 0, 42, 50, 8, "one"),
        ("orders", 1, None, 9, None, "two"),
        ("orders", 2, 50, 40, 0, ""),
    ]
    assert told.lag == 8
    assert [each.client_id for each in told.members] == ["one", "two"]


def test_lag_that_is_known_of_no_partition_is_not_known() -> None:
    assert build_group(LINE, "", "-", {}, {("orders", 0): 1}, {}).lag is None


def printed(what: RenderableType) -> str:
    to = Console(width=120)
    with to.capture() as captured:
        to.print(what)
    return captured.get()


def test_screen_has_members_positions_and_lag() -> None:
    text = printed(group_screen(report()))
    assert "billing  STABLE   CLASSIC, assignor range" in text
    assert "coordinator pod:9092   2 members   lag 8" in text
    assert "orders  0          42         50   8    one" in text
    assert "lag not known: see --lag-from" in printed(group_screen(build_group(LINE, "", "-", {}, {}, {})))


def test_list_is_a_table_or_says_that_there_is_none() -> None:
    assert "[a]" in printed(group_list([GroupLine("[a]", "EMPTY", "CLASSIC")])), "no markup"
    assert printed(group_list([])).strip() == "no group"


async def seen(objects: Json) -> tuple[Seen, ...]:
    return await KubernetesReader(RecordedServer(objects).client, NAMESPACE).look()


async def test_brokers_are_those_that_the_cluster_tells_of_the_listener() -> None:
    objects = recorded("healthy")
    objects["coordinatorclusters"][0]["status"]["listeners"] = [{"name": "outside", "bootstrap": "lb:9094"}]
    clusters = await seen(objects)
    assert bootstrap_of(clusters, "") == "orders-bootstrap.shop.svc:9092"
    assert bootstrap_of(clusters, "internal") == "orders-bootstrap.shop.svc:9092"
    assert bootstrap_of(clusters, "outside") == "lb:9094"
    with pytest.raises(CliUsageError, match="no listener nope, but internal, outside"):
        bootstrap_of(clusters, "nope")
    with pytest.raises(CliUsageError, match="2 clusters, name one: orders, orders"):
        bootstrap_of((*clusters, *clusters), "")
    with pytest.raises(Unreachable):
        bootstrap_of((), "")
    objects["coordinatorclusters"][0]["status"]["bootstrap"] = ""
    with pytest.raises(Unreachable, match="no address"):
        bootstrap_of(await seen(objects), "")


def test_client_config_has_lines_of_names_and_values(tmp_path: Path) -> None:
    file = tmp_path / "client"
    file.write_text("# how to log in\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    assert read_properties(file) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    assert read_properties(None) == {}
    file.write_text("a=b\nwhat\n")
    with pytest.raises(CliError, match="line 2: not NAME=VALUE"):
        read_properties(file)
    with pytest.raises(CliError, match="cannot read"):
        read_properties(tmp_path / "none")


def test_settings_that_no_client_knows_are_refused() -> None:
    with pytest.raises(CliError, match=r"no\.such"):
        KafkaGroups("127.0.0.1:1", {"no.such": "1"})


def test_broker_that_does_not_answer_exits_with_2_and_says_where_to_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_cli.oncall.kafka.ANSWER_S", 1.0)
    result = CliRunner().invoke(cli, ["groups", "list", "--bootstrap-server", "127.0.0.1:1"])
    assert (result.exit_code, "127.0.0.1:1 does not answer" in result.output, "--listener" in result.output) == (
        *(2, True, True),
    )
