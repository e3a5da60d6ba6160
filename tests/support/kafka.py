"""A raw Kafka client over one connection, with kio's codecs: any API, any version, answers as kio entities."""

from __future__ import annotations

import asyncio
import importlib
import io
import ssl
import struct
from collections.abc import Sequence
from typing import Any

from kio.serial import entity_reader, entity_writer
from tests.support.kafka_4_4 import SCHEMAS


def schema(api: str, version: int, part: str = "request") -> Any:
    """`schema("offset_commit", 9)`: the module with that version's entity classes."""
    added = SCHEMAS.get((api, version, part))
    return added if added is not None else importlib.import_module(f"kio.schema.{api}.v{version}.{part}")


def entity(api: str, version: int, part: str = "request") -> Any:
    """The request or response class of one API version."""
    name = "".join(word.capitalize() for word in api.split("_")) + part.capitalize()
    return getattr(schema(api, version, part), name)


class KafkaClient:
    """One connection. `call` waits for the answer of its request; answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> KafkaClient:
        return cls(*await asyncio.open_connection(host, port, ssl=tls))

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    def send(self, request: Any, client_id: str = "test") -> int:
        """Write one request (a kio entity); returns its correlation id."""
        self._correlation_id += 1
        self.writer.write(encode_request(request, self._correlation_id, client_id))
        return self._correlation_id

    async def receive(self, response_class: Any) -> tuple[int, Any]:
        """(correlation id, answer) of the next frame. Raises asyncio.IncompleteReadError when the connection ends."""
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(length)
        header, header_size = entity_reader(response_class.__header_schema__)(frame, 0)
        response, size = entity_reader(response_class)(frame, header_size)
        assert header_size + size == len(frame), f"{len(frame) - header_size - size} bytes behind the answer"
        return header.correlation_id, response

    async def call(self, request: Any) -> Any:
        """The answer to `request`, in the version of its entity."""
        module = type(request).__module__.removesuffix(".request")
        response_class = getattr(
            importlib.import_module(f"{module}.response"), type(request).__name__.removesuffix("Request") + "Response"
        )
        sent = self.send(request)
        received, response = await self.receive(response_class)
        assert received == sent
        return response

    async def commit(self, group: str, offset: int, topic: str = "t", partition: int = 0, version: int = 7) -> int:
        """Commit one offset of a simple group; returns the partition's error code."""
        response = await self.call(commit_request(group, [(topic, partition, offset)], version))
        return int(response.topics[0].partitions[0].error_code)

    async def fetch(self, group: str, topic: str = "t", partition: int = 0) -> tuple[int, int]:
        """(committed offset, error code)."""
        m = schema("offset_fetch", 7)
        response = await self.call(
            m.OffsetFetchRequest(
                group_id=group,
                topics=(m.OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,)),),
                require_stable=False,
            )
        )
        if response.error_code:
            return -1, int(response.error_code)
        found = response.topics[0].partitions[0]
        return int(found.committed_offset), int(found.error_code)


def commit_request(group: str, offsets: Sequence[tuple[str, int, int]], version: int = 7) -> Any:
    """An OffsetCommit (v7+) of a simple group: (topic, partition, offset) each."""
    m = schema("offset_commit", version)
    generation = "generation_id_or_member_epoch"
    return m.OffsetCommitRequest(
        group_id=group,
        member_id="",
        group_instance_id=None,
        topics=tuple(
            m.OffsetCommitRequestTopic(
                name=topic,
                partitions=(
                    m.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    ),
                ),
            )
            for topic, partition, offset in offsets
        ),
        **{generation: -1},
    )


def encode_request(request: Any, correlation_id: int, client_id: str = "test") -> bytes:
    """A whole frame: length, header, request."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(request))(out, request)
    body = out.getvalue()
    return struct.pack(">i", len(body)) + body
