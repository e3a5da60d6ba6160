"""What is kept of groups that nobody asks for: bytes, of which objects are made when somebody does.

Python's objects for one committed offset take ten times as much. Not compiled: msgspec needs types as Python sees them
(ADR 13).
"""

from __future__ import annotations

import msgspec

Offset = tuple[int, int, int, int, str, int, int]
"""partition, offset of the record in the log, committed offset, leader epoch, metadata, commit and expire timestamp."""

PackedTopic = tuple[str, bytes, list[Offset]]
"""topic, its id, offsets. A topic comes once for each id that its offsets have: nearly always once."""

encode_offsets = msgspec.msgpack.Encoder().encode
decode_offsets = msgspec.msgpack.Decoder(list[PackedTopic]).decode
