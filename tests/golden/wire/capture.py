"""Captures what real Kafka clients send, as golden bytes: `python -m tests.golden.wire.capture [CLIENT ...]`.

A stand-in coordinator on loopback answers the clients with this repository's own encoders, well enough that each joins
a group, commits, reads the offset back and leaves. The first request of every (API, version) of each client goes to
`requests.json`, one hex frame without its length prefix; those of clients that are not named stay. Not run by the
tests: clients come and go, bytes stay. Kafka's own client needs a JDK.
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any

from bench.builds import KAFKA_VERSION, kafka_jars

from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as g
from muster_coordinator.wire import apis, framing, k00_produce
from muster_coordinator.wire.errors import UnsupportedRequestError

TOPIC, TOPIC_ID, GROUP = "orders", b"orders-topic-id!", "golden-group"
TARGET = Path(__file__).with_name("requests.json")


class StandIn:
    """Answers every request of one group with one member at a time. Offsets live in a dict."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.offsets: dict[tuple[str, int], int] = {}

    def answer(self, request: Any) -> Any:
        match request:
            case w.ApiVersionsRequest():
                return apis.api_versions_response(request)
            case w.MetadataRequest():
                partitions = (w.MetadataPartition(0, 1, 0, 0, (1,), (1,)),)
                topics = (w.MetadataTopic(TOPIC, TOPIC_ID, partitions=partitions),)
                return w.MetadataResponse((w.MetadataBroker(1, "127.0.0.1", self.port),), "golden-cluster", 1, topics)
            case w.FindCoordinatorRequest(keys=keys):
                return w.FindCoordinatorResponse(tuple(w.Coordinator(k, 1, "127.0.0.1", self.port) for k in keys))
            case w.ProduceRequest():
                return k00_produce.refuse(request)
            case w.DescribeClusterRequest():
                return w.DescribeClusterResponse(0, "golden-cluster", 1, (w.MetadataBroker(1, "127.0.0.1", self.port),))
            case w.ListOffsetsRequest(topics=topics):
                return w.ListOffsetsResponse(tuple((t, tuple((p[0], 0, -1, 0, 0) for p in ps)) for t, ps in topics))
            case w.FetchRequest(topics=topics):
                return w.FetchResponse(
                    topics=tuple(
                        w.FetchedTopic(t.name, t.topic_id, tuple((p[0], 0, 0) for p in t.partitions)) for t in topics
                    )
                )
            case w.OffsetFetchRequests(groups=groups):
                return w.OffsetFetchResponses(tuple(self._offset_fetch(group) for group in groups))
            case w.DescribeGroupsRequest(groups=groups):
                return w.DescribeGroupsResponse(tuple(g.DescribedGroup(e.group_id, 0, None, "Empty") for e in groups))
            case w.DeleteGroupsRequest(group_ids=ids):
                return w.DeleteGroupsResponse(tuple(g.DeleteGroupResponse(each, 0) for each in ids))
        return self._answer_member(request)

    def _answer_member(self, request: Any) -> Any:
        match request:
            case g.JoinGroupRequest(member_id="") if request.api_version >= 4:
                return g.JoinGroupResponse(79, member_id=f"{request.client_id}-1")
            case g.JoinGroupRequest():
                name, metadata = request.protocols[0]
                me = request.member_id or "member-1"
                members = (g.JoinGroupMember(me, request.group_instance_id, metadata),)
                return g.JoinGroupResponse(0, 1, request.protocol_type, name, me, False, me, members)
            case g.SyncGroupRequest(assignments=assignments):
                return g.SyncGroupResponse(
                    0, request.protocol_type, request.protocol_name, dict(assignments).popitem()[1]
                )
            case g.HeartbeatRequest():
                return g.HeartbeatResponse(0)
            case g.LeaveGroupRequest(members=members):
                left = tuple(g.LeftMember(m.member_id, m.group_instance_id, 0) for m in members)
                return g.LeaveGroupResponse(0, left)
            case g.OffsetCommitRequest(topics=topics):
                for topic, partitions in topics:
                    self.offsets.update({(topic, p[0]): p[1] for p in partitions})
                return g.OffsetCommitResponse(tuple((t, tuple((p[0], 0) for p in ps)) for t, ps in topics))
            case g.ListGroupsRequest():
                return g.ListGroupsResponse(0, (g.ListedGroup(GROUP, "consumer", "Stable", "classic"),))
        raise NotImplementedError(type(request).__name__)

    def _offset_fetch(self, group: g.OffsetFetchRequest) -> g.OffsetFetchResponse:
        wanted = ((TOPIC, (0,)),) if group.topics is None else group.topics
        found = tuple((t, tuple((p, self.offsets.get((t, p), -1), -1, "", 0) for p in ps)) for t, ps in wanted)
        return g.OffsetFetchResponse(group.group_id, 0, found)


async def serve(
    stand_in: StandIn, seen: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    frames = framing.FrameReader(1 << 20)
    while data := await reader.read(1 << 16):
        for frame in frames.feed(data):
            key, version = struct.unpack_from(">hh", frame)
            seen.setdefault(f"{apis.APIS[key].name if key in apis.APIS else key} v{version}", frame.hex())
            try:
                header = framing.read_header(frame)
            except UnsupportedRequestError as error:
                if error.answer is None:
                    raise
                writer.write(error.answer)
                continue
            request = header.api.decode_request(header, frame, "/127.0.0.1")
            if isinstance(request, w.FetchRequest):
                await asyncio.sleep(request.max_wait_ms / 1000)
            body = header.api.encode_response(header.api_version, stand_in.answer(request))
            writer.write(framing.encode_response_frame(header.api, header.api_version, header.correlation_id, body))
    writer.close()


def confluent(bootstrap: str) -> None:
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    assigned: list[Any] = []
    consumer.subscribe([TOPIC], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        consumer.poll(0.1)
    consumer.poll(4)  # long enough for a heartbeat and a fetch
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 42, metadata="é")], asynchronous=False)
    assert consumer.committed([TopicPartition(TOPIC, 0)])[0].offset == 42
    consumer.close()
    producer = Producer({"bootstrap.servers": bootstrap})
    refusals: list[Any] = []
    producer.produce(TOPIC, b"", on_delivery=lambda error, _: refusals.append(error))
    producer.flush(10)
    assert refusals[0].code() == 42
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert [group.group_id for group in admin.list_consumer_groups().result().valid] == [GROUP]
    admin.describe_consumer_groups([GROUP])[GROUP].result()
    admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result()
    admin.describe_cluster().result()
    admin.delete_consumer_groups([GROUP])[GROUP].result()


def kafka_python(bootstrap: str) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition

    consumer = KafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False)
    while not consumer.assignment():
        consumer.poll(100)
    consumer.poll(4000)
    partition = TopicPartition(TOPIC, 0)
    consumer.commit({partition: OffsetAndMetadata(43, "x", -1)})
    assert consumer.committed(partition) == 43
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.list_groups()
    admin.close()


async def aiokafka(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False)
    await consumer.start()
    await consumer.getmany(timeout_ms=4000)
    await consumer.commit({TopicPartition(TOPIC, 0): 44})
    assert await consumer.committed(TopicPartition(TOPIC, 0)) == 44
    await consumer.stop()


def kafka_clients(bootstrap: str) -> None:
    source = Path(__file__).with_name("GoldenClient.java")
    subprocess.run(["java", "-cp", f"{kafka_jars()}/*", str(source), bootstrap, GROUP, TOPIC], check=True, timeout=50)


CLIENTS = {
    "kafka-clients": lambda bootstrap: kafka_clients(bootstrap),
    "confluent-kafka": lambda bootstrap: confluent(bootstrap),
    "kafka-python": lambda bootstrap: kafka_python(bootstrap),
    "aiokafka": lambda bootstrap: asyncio.run(aiokafka(bootstrap)),
}


async def capture(name: str) -> dict[str, str]:
    seen: dict[str, str] = {}
    stand_in = StandIn(0)
    server = await asyncio.start_server(lambda r, w: serve(stand_in, seen, r, w), "127.0.0.1", 0)
    stand_in.port = server.sockets[0].getsockname()[1]
    await asyncio.wait_for(asyncio.to_thread(CLIENTS[name], f"127.0.0.1:{stand_in.port}"), 60)
    server.close()
    return dict(sorted(seen.items()))


def main() -> None:
    chosen = sys.argv[1:] or list(CLIENTS)
    found = {client: seen for client, seen in json.loads(TARGET.read_text()).items() if client.split()[0] not in chosen}
    for name in chosen:
        release = KAFKA_VERSION if name == "kafka-clients" else distribution_version(name)
        found[f"{name} {release}"] = asyncio.run(capture(name))
        print(name, *found[f"{name} {release}"], sep="\n  ")
    TARGET.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
