"""Gateways whose own settings do not name the groups that pods let move: they agree with all others about who serves a
group, also when they start after it has moved. Real Kafka, three replicas, live clients of three libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.test_gateway_transactions import INPUT
from tests.integration.test_movable_groups import until
from tests.integration.test_moving_groups import PREFIX, Site, commits_go_on, offsets_at, site
from tests.support.gateway import GatewayProcess
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.live_groups import LiveGroups

from muster_cli.local.front import BROKER_PORTS, POD_PORTS, _free_block

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(400),
]


class SameAddress:
    """Starts of one gateway: clients find it again where it was."""

    def __init__(self, folder: Path, it: Site) -> None:
        self._folder = folder
        self._it = it
        self._port = _free_block(frozenset())

    def named(self, movable: str) -> GatewayProcess:
        """`movable`: its `muster.movable.groups`."""
        folder = self._folder / f"gateway-{movable}"
        folder.mkdir()
        found = GatewayProcess(
            folder,
            self._it.kafka.bootstrap,
            ",".join(self._it.pods.listeners()),
            {
                "muster.groups": "m-",
                "muster.transactions": "1",
                "muster.movable.groups": movable,
                "muster.api.servers": ",".join(self._it.pods.apis()),
                "bootstrap.port": str(self._port),
                "broker.port.base": str(self._port + BROKER_PORTS),
                "pod.port.base": str(self._port + POD_PORTS),
            },
        )
        found.port = self._port
        return found


async def test_groups_move_through_gateways_that_do_not_name_them_and_stay_with_one_coordinator(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        gateways = SameAddress(tmp_path, it)
        first, second = gateways.named(""), gateways.named("else-")
        async with first:
            with LiveGroups(first.bootstrap, INPUT, PREFIX) as groups:
                await until(lambda: all(each.assigned and each.commits > 20 for each in groups.members), groups.members)
                for member in groups.members:
                    await it.pods.move(member.group)
                assert first.events("movable_groups_learned")
                await commits_go_on(groups.members, "at Muster")
                at_kafka = await offsets_at(it.kafka.bootstrap, groups.members)
                first.kill()
                async with second:  # it has not seen the moves
                    await commits_go_on(groups.members, "through a gateway that started after the moves")
                    assert await offsets_at(it.kafka.bootstrap, groups.members) == at_kafka, "Kafka took a commit"
                    groups.stop_feeding()
                    everything = set(groups.values)
                    await until(lambda: all(set(each.values) >= everything for each in groups.members), groups.members)
                    revoked = [each.revoked for each in groups.members]
                    done = {each.group: groups.produced for each in groups.members}
                    for each in groups.members:
                        each.stopped.set()
                    found = await offsets_at(second.bootstrap, groups.members)
        assert revoked == [0, 0, 0]
        assert {group: sum(at) for group, at in found.items()} == done
