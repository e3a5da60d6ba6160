"""Spans that stay in memory, by the SDK's own exporter."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from muster_coordinator.tracing.spans import SentSpans


class KeptSpans(SentSpans):
    """`ended`: spans in the order in which they ended."""

    def __init__(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        super().__init__(provider)

    @property
    def ended(self) -> list[ReadableSpan]:
        return [*self._exporter.get_finished_spans()]

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.ended if each.name == name]

    def tree(self) -> list[tuple[str, str]]:
        """(name of the parent, name) of each, in the order in which they ended."""
        names = {each.get_span_context().span_id: each.name for each in self.ended}
        parents = [names.get(each.parent.span_id, "elsewhere") if each.parent else "" for each in self.ended]
        return [(parent, each.name) for parent, each in zip(parents, self.ended, strict=True)]


def attributes(span: ReadableSpan) -> dict[str, object]:
    """The attributes without the "muster." before each."""
    return {name.removeprefix("muster."): value for name, value in (span.attributes or {}).items()}


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """Start and end, in seconds since 1970."""
    assert span.start_time is not None
    assert span.end_time is not None
    return round(span.start_time / 1e9, 3), round(span.end_time / 1e9, 3)
