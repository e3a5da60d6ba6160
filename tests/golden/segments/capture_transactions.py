"""Captures a log of `__transaction_state` that a real Kafka broker wrote:

    python -m tests.golden.segments.capture_transactions

A transactional id that has expired, one for each state that lasts, and two open transactions. Beside the segment is
what Kafka's own DumpLogSegments says of it. Not run by the tests.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from bench.builds import KAFKA_VERSION
from tests.conformance.test_transaction_walks import Broker, coordinator_is_there
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import KafkaBroker, run_tool
from tests.unit.transactions.harness import NO_PRODUCER

NAME = f"kafka-{KAFKA_VERSION}-transactions"
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
DUMP = ("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--deep-iteration", "--files")


async def main() -> None:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        async with KafkaBroker(Path(directory), SETTINGS, {"t": 1}) as running:
            client = await KafkaClient.connect(running.port)
            broker = Broker(client)
            await coordinator_is_there(broker)
            await _fill(broker)
            await client.close()
            await running.stop()
            log = running.data_dir / "__transaction_state-0" / f"{0:020}.log"
            shutil.copyfile(log, here / f"{NAME}.log")
            code, output = await run_tool(*DUMP, str(log))
            assert code == 0, output
            (here / f"{NAME}.dump").write_text("".join(output.splitlines(keepends=True)[1:]))


async def _fill(broker: Broker) -> None:
    """The id that `coordinator_is_there` made expires first."""
    await asyncio.sleep(4)
    for name in ("empty", "ongoing-ä", "old-ongoing", "committed-1", "committed-2", "aborted-1", "aborted-2"):
        code, *producer = await broker.init(name, NO_PRODUCER)
        assert code == 0
        first = producer[0], producer[1]
        if name == "empty":
            continue
        assert await broker.add(name, first, 1, 3) == (0,)
        assert await broker.add(name, first, 3, 5) == (0,)
        kind, _, version = name.partition("-")
        if kind in ("committed", "aborted"):
            code, *_ = await broker.end(name, first, kind == "committed", 3 + int(version))
            assert code == 0
            await broker.describe(name)


if __name__ == "__main__":
    asyncio.run(main())
