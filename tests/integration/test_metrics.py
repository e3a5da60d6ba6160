"""GET /metrics of a real pod: names, types and texts are those of docs/metrics.md, and they count what happened."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parents[2] / "hack"))

import kio.schema.heartbeat.v4.request as heartbeat
import render_metrics  # hack/ is no package
from tests.support.pod import SoloPod

from muster_coordinator.errors import ErrorCode
from muster_coordinator.podapi.models import StatusEvent

pytestmark = pytest.mark.integration


async def test_page_has_every_metric_of_a_pod_and_no_other(tmp_path: Path) -> None:
    rendered = {each.name: (each.type, each.text) for each in render_metrics.part(render_metrics.PARTS[0][0])}
    async with (
        SoloPod(tmp_path / "data") as pod,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{pod.api_port}/metrics") as response,
    ):
        families = list(text_string_to_metric_families(await response.text()))
    assert {f.name: (f.type, f.documentation) for f in families if f.name.startswith("muster_")} == rendered


async def test_pod_is_ready_with_its_first_image_and_the_watch_stream_says_so(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data") as pod:
        pod.kill()
        await pod.start(elect=False)
        ready: list[bool] = []
        async with asyncio.timeout(20):
            async for event in pod.api.watch(silence_s=5):
                if isinstance(event, StatusEvent):
                    ready.append(event.status.ready)
                    if event.status.ready:
                        break
                    await pod.push_metadata()
        assert ready[0] is False
        assert ready[-1] is True


async def test_metrics_count_what_happened_and_keep_it_when_the_leadership_ends(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", partitions=2) as pod:
        client = await pod.client()
        for offset in range(5):
            assert await client.commit("g", offset) == 0
        for _ in range(2):
            request = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
            assert (await client.call(request)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await client.close()
        assert await pod.metric("muster_request_errors_total", api="Heartbeat", error="UNKNOWN_MEMBER_ID") == 2
        assert await pod.metric("muster_offset_commits_total") == 5
        assert await pod.metric("muster_offsets") == 1
        assert await pod.metric("muster_groups", state="Empty") == 1
        assert await pod.metric("muster_transactional_ids", state="Ongoing") == 0
        assert await pod.metric("muster_partitions", state="ACTIVE") == 2
        assert await pod.metric("muster_requests_total", api="OffsetCommit") == 5
        assert await pod.metric("muster_request_seconds_count", api="OffsetCommit") == 5
        assert 0 < await pod.metric("muster_request_seconds_sum", api="OffsetCommit") < 5
        assert await pod.metric("muster_sessions_ended_total") == 0
        assert await pod.metric("muster_load_seconds_count", topic="__consumer_offsets") == 2
        assert await pod.metric("muster_flush_seconds_count") >= 5
        assert await pod.metric("muster_flush_seconds_sum") > 0
        await pod.api.drain()
        assert await pod.metric("muster_offset_commits_total") == 5
        assert await pod.metric("muster_offsets") == 0
        assert await pod.metric("muster_partitions", state="ACTIVE") == 0
