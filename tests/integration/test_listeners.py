"""A pod with two listeners: each client is sent to the address of its own one."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.pod import SoloPod, free_ports

from muster_cli.demo.consumers import committed_offsets
from muster_cli.demo.meter import Meter
from muster_coordinator.podapi.image import Broker, Endpoint, MetadataImage, PartitionLeader

pytestmark = pytest.mark.integration


async def test_client_of_each_listener_is_sent_to_the_address_that_is_advertised_there(tmp_path: Path) -> None:
    (outside,) = free_ports(1)

    class TwoListeners(SoloPod):
        program = (*SoloPod.program, "--listener", f"outside=127.0.0.1:{outside}")

    async with TwoListeners(tmp_path / "data") as pod:
        # "localhost" tells it from the address of the other listener.
        told = Broker(0, "127.0.0.1", pod.kafka_port, "pod-0", (Endpoint("outside", "localhost", outside),))
        image = MetadataImage(1, 99, "test", (told,), 1, (PartitionLeader(0, 0, pod.epoch),), any_topic=True)
        await pod.api.update_metadata(image)
        for port, host in ((pod.kafka_port, "127.0.0.1"), (outside, "localhost")):
            cluster = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=20)
            assert {(each.host, each.port) for each in cluster.brokers.values()} == {(host, port)}
            meter = Meter(f"127.0.0.1:{port}", f"g-{port}", "t")
            meter.start()
            while meter.count < 5:
                meter.join(0.01)
            meter.stop()
            assert meter.error is None
            assert committed_offsets(f"127.0.0.1:{port}", f"g-{port}", "t", 1, 20.0)[0] >= 5
