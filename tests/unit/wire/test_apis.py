"""The table of APIs: what it says, and that the page and the module headers say the same."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.unit.wire import kio_oracle

from muster_coordinator.wire.api import Api
from muster_coordinator.wire.apis import APIS, MODULES
from muster_coordinator.wire.document import document
from muster_coordinator.wire.served import KAFKA_4_3, KAFKA_4_4, NEW_IN_4_4

ROOT = Path(__file__).parents[3]

SERVED = {
    0: ("Produce", 3, 12),
    1: ("Fetch", 4, 18),
    2: ("ListOffsets", 1, 11),
    3: ("Metadata", 0, 13),
    8: ("OffsetCommit", 2, 10),
    9: ("OffsetFetch", 1, 10),
    10: ("FindCoordinator", 0, 6),
    11: ("JoinGroup", 0, 9),
    12: ("Heartbeat", 0, 4),
    13: ("LeaveGroup", 0, 5),
    14: ("SyncGroup", 0, 5),
    15: ("DescribeGroups", 0, 6),
    16: ("ListGroups", 0, 5),
    17: ("SaslHandshake", 0, 1),
    18: ("ApiVersions", 0, 4),
    27: ("WriteTxnMarkers", 1, 2),
    28: ("TxnOffsetCommit", 0, 5),
    29: ("DescribeAcls", 1, 3),
    30: ("CreateAcls", 1, 3),
    31: ("DeleteAcls", 1, 3),
    32: ("DescribeConfigs", 1, 4),
    33: ("AlterConfigs", 0, 2),
    36: ("SaslAuthenticate", 0, 2),
    42: ("DeleteGroups", 0, 2),
    44: ("IncrementalAlterConfigs", 0, 1),
    47: ("OffsetDelete", 0, 0),
    48: ("DescribeClientQuotas", 0, 1),
    50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0),
    60: ("DescribeCluster", 0, 2),
    68: ("ConsumerGroupHeartbeat", 0, 1),
    69: ("ConsumerGroupDescribe", 0, 1),
    74: ("ListConfigResources", 0, 1),
    76: ("ShareGroupHeartbeat", 1, 1),
    88: ("StreamsGroupHeartbeat", 0, 0),
}


def test_served_apis_are_those_promised() -> None:
    assert {key: (api.name, api.min_version, api.max_version) for key, api in APIS.items()} == SERVED
    assert list(APIS) == sorted(APIS)


def test_kafka_4_4_has_one_version_more_of_three_apis() -> None:
    assert KAFKA_4_3.without_transactions == tuple(APIS.values())
    before = {api.key: api for api in KAFKA_4_3.all}
    after = {api.key: api for api in KAFKA_4_4.all}
    assert list(before) == list(after)
    changed = {key: (api.name, api.max_version) for key, api in after.items() if api != before[key]}
    assert changed == {18: ("ApiVersions", 5), 28: ("TxnOffsetCommit", 6), 42: ("DeleteGroups", 3)}
    new = {(key >> 16, key & 0xFFFF) for key in KAFKA_4_4.versions if key not in KAFKA_4_3.versions}
    assert new == {(18, 5), (28, 6), (42, 3)}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_version_is_one_of_kafkas(api: Api) -> None:
    assert set(range(api.min_version, api.max_version + 1)) <= set(kio_oracle.versions(api.name))


@pytest.mark.interpreted
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.API.name)
def test_module_header_tells_the_table(module: ModuleType) -> None:
    """Key, range, first flexible version, and a line for each version behind the first."""
    api, header = module.API, module.__doc__ or ""
    first_line = header.splitlines()[0]
    assert first_line.startswith(f"{api.name} ({api.key}), ")
    assert module.__name__.endswith(f".k{api.key:02d}_{kio_oracle.folder(api.name)}")
    said = re.search(r"versions? (\d+)(?: to (\d+))?", first_line)
    assert said is not None
    assert (int(said[1]), int(said[2] or said[1])) == (api.min_version, api.max_version)
    flexible = re.search(r"flexible from (\d+)|not flexible|flexible", first_line)
    assert flexible is not None
    assert api.first_flexible == {"not flexible": None, "flexible": api.min_version}.get(
        flexible[0], flexible[1] and int(flexible[1])
    )
    lines = [int(version) for version in re.findall(r"^- v(\d+):", header, re.MULTILINE)]
    highest = next((new.max_version for new in NEW_IN_4_4 if new.key == api.key), api.max_version)
    assert (f" and with Kafka 4.4 to {highest}, " in first_line) is (highest > api.max_version)
    wanted = list(range(api.min_version + 1, highest + 1))
    assert [version for version in lines if version > api.min_version] == wanted


@pytest.mark.interpreted
def test_page_is_generated_from_the_table() -> None:
    page = ROOT / "docs" / "protocol.md"
    assert page.read_text() == document(), "run: python -m muster_coordinator.wire.document > docs/protocol.md"
