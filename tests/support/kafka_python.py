"""The options of kafka-python clients of which no rebalance is counted."""

from __future__ import annotations

from typing import Any

METADATA: dict[str, Any] = {"metadata_max_age_ms": 2_000}
"""kafka-python asks for the topics of a subscription, or of a first record, by marking its metadata as old. An answer
that is under way at that moment takes the mark away (ClusterMetadata.update_metadata), and the topics are asked for
when the metadata is too old: after five minutes, if nothing is said. A leader of a group that learns of a topic so has
its group rebalance, which is why tests that count rebalances leave it at that.
"""
