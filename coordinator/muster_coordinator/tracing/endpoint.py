"""The address of a collector."""

from __future__ import annotations

from urllib.parse import urlsplit


def check_endpoint(text: str) -> None:
    """Raises ValueError for what is no URL of a collector. "" is none."""
    if text and (urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname):
        raise ValueError("http://HOST:PORT or https://HOST:PORT is needed")
