"""Logs of the transaction topic beside stopped ones that are re-sharded: refused while they have open transactions.

A transaction names the offsets partitions that get its markers. With another number of partitions its groups live
elsewhere, so its markers would go to the wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.schema import Kind, select_schema
from muster_pipeline.source.files import InputError, find_segments
from muster_pipeline.source.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_COLUMNS = ["offset", "kind", "transactional_id", "transaction_state"]
_KINDS = frozenset({Kind.TRANSACTION_STATE, Kind.TRANSACTION_TOMBSTONE})
_SHOWN = 3


def refuse_open_transactions(paths: Sequence[str]) -> None:
    """Raises InputError, SegmentReadError."""
    open_ids = sorted(_open_ids(paths))
    if open_ids:
        more = f" and {len(open_ids) - _SHOWN} more" if len(open_ids) > _SHOWN else ""
        raise InputError(
            f"{', '.join(map(repr, open_ids[:_SHOWN]))}{more} in {TRANSACTIONS_TOPIC}: open transactions, whose markers"
            " are for the old partitions. Start the cluster until their producers have ended them or their time-outs "
            f"have, stop it, and begin again; or name only directories {OFFSETS_TOPIC}-N"
        )


def refuse_transaction_topic(paths: Sequence[str]) -> None:
    """Raises InputError if there are logs of that topic and none of offsets."""
    if find_segments(paths, may_be_none=True) or not find_segments(paths, (TRANSACTIONS_TOPIC,), may_be_none=True):
        return
    raise InputError(
        f"{', '.join(paths)}: only logs of {TRANSACTIONS_TOPIC}, which cannot be re-sharded. The number of a partition "
        "decides which producer ids it hands out, so new logs under old numbers could hand out ids a second time"
    )


def _open_ids(paths: Sequence[str]) -> Iterator[str]:
    decoder = Decoder(Selection(select_schema(_COLUMNS), _KINDS))
    last: dict[tuple[str, str], tuple[int, str | None]] = {}
    for segment in find_segments(paths, (TRANSACTIONS_TOPIC,), may_be_none=True):
        with FileBytes(segment.path) as source:
            for batch in decoder.decode(source, segment.origin()):
                for row in batch.to_pylist():
                    key = segment.log, row["transactional_id"]
                    last[key] = max(last.get(key, (-1, None)), (row["offset"], row["transaction_state"]))
    return (transactional_id for (_, transactional_id), (_, state) in last.items() if state in OPEN)
