"""Opens the way to a collector where one is set."""

from __future__ import annotations

from muster_coordinator.tracing.endpoint import check_endpoint
from muster_coordinator.tracing.ports import Spans


class TracingError(Exception):
    """Spans are wanted, and cannot be sent; the message says what is missing."""


def open_spans(endpoint: str, service: str, instance: str, version: str) -> Spans | None:
    """Returns None without an `endpoint`. `instance` tells the processes of a `service` apart. Raises TracingError."""
    if not endpoint:
        return None
    try:
        check_endpoint(endpoint)
        from muster_coordinator.tracing.spans import spans_to
    except ValueError as error:
        raise TracingError(f"{endpoint!r}: {error}") from None
    except ImportError as error:
        message = f"spans need the extra `tracing`: pip install 'muster[tracing]' ({error})"
        raise TracingError(message) from None
    return spans_to(endpoint, service, instance, version)
