"""A stand-in coordinator with a planted fault, to show that the checker sees it."""

from __future__ import annotations

import asyncio
import importlib
import io
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from tests.support.kafka import schema

_APIS = {8: ("offset_commit", 7), 9: ("offset_fetch", 7), 10: ("find_coordinator", 4), 3: ("metadata", 12)}


class ForgetfulCoordinator:
    """Coordinates every group. `crash` closes all connections and forgets what was acknowledged in the meantime since
    `keep`, as a coordinator does that answers before its records are on disk. `answer_fetch` may change answers."""

    def __init__(self) -> None:
        self.committed: dict[str, int] = {}
        self.answer_fetch: Callable[[str, int], int] = lambda _group, offset: offset
        self._kept: dict[str, int] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> ForgetfulCoordinator:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._close()

    def keep(self) -> None:
        self._kept = dict(self.committed)

    def crash(self) -> None:
        self.committed = dict(self._kept)
        self._close()

    def _close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                key, _, correlation_id = struct.unpack_from(">hhi", frame)
                name, version = _APIS[key]
                writer.write(self._answer(name, version, frame, correlation_id))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, name: str, version: int, frame: bytes, correlation_id: int) -> bytes:
        request_class = getattr(schema(name, version), _class(name, "Request"))
        _, header_size = entity_reader(request_class.__header_schema__)(frame, 0)
        request, _ = entity_reader(request_class)(frame, header_size)
        response = getattr(self, f"_{name}")(request, importlib.import_module(f"kio.schema.{name}.v{version}.response"))
        out = io.BytesIO()
        header = response.__header_schema__(correlation_id=correlation_id)
        entity_writer(type(header))(out, header)
        entity_writer(type(response))(out, response)
        return struct.pack(">i", len(out.getvalue())) + out.getvalue()

    def _offset_commit(self, request: Any, m: Any) -> Any:
        self.committed[request.group_id] = request.topics[0].partitions[0].committed_offset
        partition = m.OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.none)
        return m.OffsetCommitResponse(
            throttle_time=_no_time(),
            topics=(m.OffsetCommitResponseTopic(name=request.topics[0].name, partitions=(partition,)),),
        )

    def _offset_fetch(self, request: Any, m: Any) -> Any:
        offset = self.answer_fetch(request.group_id, self.committed.get(request.group_id, -1))
        partition = m.OffsetFetchResponsePartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.none,
        )
        topic = m.OffsetFetchResponseTopic(name=request.topics[0].name, partitions=(partition,))
        return m.OffsetFetchResponse(throttle_time=_no_time(), topics=(topic,), error_code=ErrorCode.none)

    def _find_coordinator(self, request: Any, m: Any) -> Any:
        return m.FindCoordinatorResponse(
            throttle_time=_no_time(),
            coordinators=tuple(
                m.Coordinator(
                    key=key, node_id=0, host="127.0.0.1", port=self.port, error_code=ErrorCode.none, error_message=None
                )
                for key in request.coordinator_keys
            ),
        )

    def _metadata(self, request: Any, m: Any) -> Any:
        broker = m.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port, rack=None)
        return m.MetadataResponse(
            throttle_time=_no_time(), brokers=(broker,), cluster_id="double", controller_id=0, topics=()
        )


def _class(name: str, ending: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + ending


def _no_time() -> Any:
    return timedelta(0)
