"""Structured logs to standard error: one JSON object per line, or coloured text for people."""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

import structlog


class LogFile:
    """A file for logs whose failures change nothing for who writes: where logs share the disk that has become full, the
    line that says so cannot be written either. The number of lines that were lost is the next line that can be."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lost = 0

    def write(self, line: str) -> None:
        """Write one line, if that is possible."""
        try:
            if self._lost:
                self._file.write(f'{{"event": "log_lines_lost", "level": "error", "count": {self._lost}}}\n')
                self._file.flush()
                self._lost = 0
            self._file.write(line)
            self._file.flush()
        except OSError:
            self._lost += 1

    def flush(self) -> None:
        """`write` has done it."""


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
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, LogFile(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
