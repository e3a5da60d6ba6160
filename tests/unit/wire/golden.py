"""The captured requests of `tests/golden/wire/requests.json`."""

from __future__ import annotations

import json
from pathlib import Path

_FILE = Path(__file__).parents[2] / "golden" / "wire" / "requests.json"

FRAMES: dict[str, bytes] = {
    f"{client}: {request}": bytes.fromhex(frame)
    for client, requests in json.loads(_FILE.read_text()).items()
    for request, frame in requests.items()
}
"""("client version: API version") -> a frame without its length prefix."""
