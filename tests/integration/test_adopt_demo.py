"""The walk of docs/adopt.md, as `make demo-adopt` runs it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kafka_broker import why_no_kafka_yet

REPOSITORY = Path(__file__).parents[2]
MISSING = why_no_kafka_yet()

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(500),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]


def test_applications_of_a_kafka_cluster_come_to_muster_and_each_has_every_record_once(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "tests.support.adopt_demo", str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = demo.communicate(timeout=450)
    except subprocess.TimeoutExpired:
        demo.send_signal(signal.SIGINT)  # it ends brokers and pods
        output, _ = demo.communicate(timeout=40)
        pytest.fail(output)
    assert demo.returncode == 0, output
    assert "at a broker: billing\n" in output
    assert "at the gateway: billing, m-audit\n" in output
    assert re.search(r"muster-\d is gone; the longest time between two commits", output)
    assert re.search(r"billing: moved, its requests waited \d+ ms", output)
    assert re.search(r"billing: moved back to Kafka, its requests waited \d+ ms", output)
    assert re.search(r"\d+ records were acknowledged, and each of the two applications had all of them", output)
