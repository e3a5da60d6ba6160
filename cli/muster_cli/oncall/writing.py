"""Offsets are written to a group, and read again."""

from __future__ import annotations

from collections.abc import Mapping

from muster_cli.errors import CliError
from muster_cli.oncall.groups import Place
from muster_cli.oncall.kafka import KafkaGroups
from muster_cli.oncall.undo import Committed


def why_not_written(client: KafkaGroups, group: str, wanted: Mapping[Place, Committed]) -> str:
    """Writes them; "" if the group has them then. The answer alone is not believed."""
    try:
        client.commit(group, wanted)
        now = client.committed(group)
    except CliError as error:
        return str(error)
    wrong = [f"{topic}-{number}" for (topic, number), each in wanted.items() if now.get((topic, number)) != each.offset]
    return f"somebody else has committed since: {', '.join(wrong)}" if wrong else ""
