"""Structured logs to standard error: one JSON object per line, or coloured text for people."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(log_format: str) -> None:
    """`log_format`: "json" or "console". Libraries' own logs come out as plain warnings."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if log_format == "console" else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
