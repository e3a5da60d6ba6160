"""A declared topic that is removed: its offsets stay, unless the setting says that they go, as with Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("setting", "left"), [("0", 7), ("1", -1)])
async def test_offsets_of_a_removed_topic_go_only_if_the_setting_says_so(
    tmp_path: Path, setting: str, left: int
) -> None:
    config = [f"muster.delete.offsets.of.removed.topics={setting}"]
    async with SoloPod(tmp_path / "data", topics={"kept": 1, "gone": 1}, config=config) as pod:
        client = await pod.client()
        for topic in ("kept", "gone"):
            assert await client.commit("g", 7, topic) == 0
        pod.topics = {"kept": 1}
        await pod.push_metadata()
        assert await client.commit("g", 8, "gone") == 3, "nobody commits to it any more"
        assert await client.fetch("g", "kept") == (7, 0)
        assert await client.fetch("g", "gone") == (left, 0)
        await client.close()
        pod.kill()
        await pod.start()
        client = await pod.client()
        assert await client.fetch("g", "gone") == (left, 0), "and so it is after a restart"
        await client.close()
