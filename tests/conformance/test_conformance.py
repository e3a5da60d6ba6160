"""The whole comparison with a real Kafka, where one is at hand: `make test` includes `make conformance`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kafka_broker import why_no_kafka_yet

ROOT = Path(__file__).parents[2]


@pytest.mark.integration
@pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet())
@pytest.mark.timeout(600)
def test_no_answer_differs_from_kafkas_without_a_reason() -> None:
    command = [sys.executable, "-m", "tests.conformance", "--require-kafka"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=570, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert ", 0 unexplained, 0 broken, 0 unused explanations" in done.stdout
