"""Spans of one process by OpenTelemetry's SDK, over HTTP. Only `opening` imports this, when spans are wanted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan

from muster_coordinator.tracing.ports import NOTHING, Attribute

SEND_TIMEOUT_S = 2.0
"""Spans that the collector does not take within this time, in seconds, are dropped: the end of a process waits no
longer."""
PATH = "/v1/traces"

logger = structlog.get_logger(__name__)


class SentSpan:
    """Implements `ports.Span`."""

    __slots__ = ("_span", "trace")

    def __init__(self, span: SdkSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.trace = f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-01"

    @property
    def trace_id(self) -> str:
        return self.trace.split("-")[1]

    def end(self, at_s: float | None = None, **attributes: Attribute) -> None:
        self._span.set_attributes(_named(attributes))
        self._span.end(_nanoseconds(at_s))


class SentSpans:
    """Implements `ports.Spans`. A thread of the SDK sends, and what does not fit its queue is dropped."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("muster")

    def begin(
        self,
        name: str,
        parent: str = "",
        start_s: float | None = None,
        attributes: Mapping[str, Attribute] = NOTHING,
    ) -> SentSpan:
        context = _context(parent)
        inside = set_span_in_context(NonRecordingSpan(context)) if context is not None else None
        return SentSpan(
            self._tracer.start_span(name, inside, attributes=_named(attributes), start_time=_nanoseconds(start_s))
        )

    def close(self) -> None:
        self._provider.shutdown()


def spans_to(endpoint: str, service: str, instance: str, version: str) -> SentSpans:
    """Spans for the collector at the URL `endpoint`. Other options of the exporter are those of its environment."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # `_Told` tells it, as a line like others
    names = {"service.name": service, "service.instance.id": instance, "service.version": version}
    provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
    url = endpoint.rstrip("/")
    exporter = OTLPSpanExporter(url if url.endswith(PATH) else url + PATH, timeout=SEND_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(_Told(exporter, endpoint)))
    return SentSpans(provider)


class _Told(SpanExporter):
    """Tells once that spans are not taken, and once that they are again."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        fails = result is not SpanExportResult.SUCCESS
        if fails != self._fails:
            self._fails = fails
            log = logger.warning if fails else logger.info
            log("spans_lost" if fails else "spans_taken_again", endpoint=self._endpoint, spans=len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _named(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {f"muster.{name}": value for name, value in attributes.items()}


def _nanoseconds(at_s: float | None) -> int:
    return time.time_ns() if at_s is None else int(at_s * 1e9)


def _context(trace: str) -> SpanContext | None:
    """Another process may have sent it: what cannot be read is as if it was not there."""
    parts = trace.split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        found = SpanContext(int(parts[1], 16), int(parts[2], 16), is_remote=True, trace_flags=TraceFlags(1))
    except ValueError:
        return None
    return found if found.is_valid else None
