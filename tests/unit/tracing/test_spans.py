"""Spans reach a collector, nothing of it is there without one, and one that is away holds nobody up."""

from __future__ import annotations

import subprocess
import sys
import time
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs
from tests.support.collector import Collector
from tests.support.pod import free_ports

from muster_coordinator.tracing.endpoint import check_endpoint
from muster_coordinator.tracing.opening import TracingError, open_spans
from muster_coordinator.tracing.spans import SEND_TIMEOUT_S

NAMES = ("muster-coordinator", "muster-0", "0.1.0")


def test_spans_of_two_processes_are_one_trace() -> None:
    with Collector() as collector:
        operator = open_spans(collector.endpoint, "muster-operator", "ns/op", "0.1.0")
        pod = open_spans(collector.endpoint + "/v1/traces", *NAMES)
        assert operator is not None
        assert pod is not None
        outer = operator.begin("call", start_s=1_700_000_000.25, attributes={"pod": "muster-0", "count": 2})
        inner = pod.begin("onElection", outer.trace, attributes={"partitions": ["a", "b"]})
        inner.end(outcome="ACTIVE")
        outer.end(1_700_000_001.5)
        operator.close()
        pod.close()
        call, election = collector.spans()
    assert (call.service, call.instance, call.name, call.parent) == ("muster-operator", "ns/op", "call", "")
    assert (call.start_s, call.end_s) == pytest.approx((1_700_000_000.25, 1_700_000_001.5), abs=1e-5)
    assert call.attributes == {"pod": "muster-0", "count": 2}
    assert (election.service, election.instance) == NAMES[:2]
    assert (election.trace, election.parent) == (call.trace, call.id)
    assert election.trace == outer.trace_id
    assert election.attributes == {"partitions": ["a", "b"], "outcome": "ACTIVE"}
    assert abs(election.end_s - time.time()) < 60


@pytest.mark.parametrize(
    "parent", ["", "no", "00-x-y-01", f"00-{'g' * 32}-{'1' * 16}-01", f"00-{'0' * 32}-{'0' * 16}-01", "1-2-3-4-5"]
)
def test_trace_that_cannot_be_read_begins_another_one(parent: str) -> None:
    with Collector() as collector:
        spans = open_spans(collector.endpoint, *NAMES)
        assert spans is not None
        spans.begin("onElection", parent).end()
        spans.close()
        (span,) = collector.spans()
    assert span.parent == ""


def test_process_without_a_collector_imports_nothing_of_it() -> None:
    code = (
        "import sys; import muster_coordinator.process.main, muster_operator.__main__, muster_cli.local.up;"
        "from muster_coordinator.tracing.opening import open_spans;"
        "assert open_spans('', 'a', 'b', 'c') is None;"
        "found = [each for each in sys.modules if each.startswith(('opentelemetry', 'google.protobuf'))];"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_extra_is_named() -> None:
    hidden = {"muster_coordinator.tracing.spans": None}
    with patch.dict(sys.modules, hidden), pytest.raises(TracingError, match=r"muster\[tracing\]"):
        open_spans("http://collector:4318", *NAMES)


@pytest.mark.parametrize("text", ["collector:4318", "grpc://collector:4317", "http://", "/v1/traces"])
def test_endpoint_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        check_endpoint(text)
    with pytest.raises(TracingError, match="http://HOST:PORT"):
        open_spans(text, *NAMES)


def test_collector_that_is_away_is_told_and_holds_nobody_up() -> None:
    spans = open_spans(f"http://127.0.0.1:{free_ports(1)[0]}", *NAMES)
    assert spans is not None
    with capture_logs() as logs:
        spans.begin("request").end()
        began = time.monotonic()
        spans.close()
        took_s = time.monotonic() - began
    assert [each["event"] for each in logs] == ["spans_lost"]
    assert took_s < 10 * SEND_TIMEOUT_S
