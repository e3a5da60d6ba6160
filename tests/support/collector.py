"""A collector of OpenTelemetry's spans: takes them over HTTP, as the protocol says, and keeps them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from zlib import MAX_WBITS, decompress

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATH = "/v1/traces"


@dataclass(frozen=True)
class Seen:
    """A span. `trace`, `id` and `parent` are hex digits; times are seconds since 1970. `attributes`: without the
    "muster." before each."""

    service: str
    instance: str
    name: str
    trace: str
    id: str
    parent: str
    start_s: float
    end_s: float
    attributes: dict[str, Any]


class Collector:
    """Listens on a free port of this machine, from its construction to the end of the `with`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Seen] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = decompress(body, MAX_WBITS | 16)
                is_ours = self.path == PATH and self.headers["Content-Type"] == "application/x-protobuf"
                if is_ours:
                    collector._take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if is_ours else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing of each request."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self, name: str = "") -> list[Seen]:
        """The spans of this name, in the order of their starts."""
        with self._lock:
            found = [each for each in self._spans if name in ("", each.name)]
        return sorted(found, key=lambda each: each.start_s)

    def _take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    seen = Seen(
                        about["service.name"],
                        about["service.instance.id"],
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano / 1e9,
                        span.end_time_unix_nano / 1e9,
                        {each.key.removeprefix("muster."): _value(each.value) for each in span.attributes},
                    )
                    with self._lock:
                        self._spans.append(seen)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
