"""Groups as Kafka's protocol has them, asked with librdkafka's admin client. Needs the extra `pipeline`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster_cli.errors import CliError
from muster_cli.oncall.groups import GroupLine, GroupReport, Member, Place, build_group
from muster_cli.oncall.seen import Unreachable
from muster_cli.oncall.undo import Committed
from muster_coordinator.reset_aims import Edges

ANSWER_S = 10.0
"""Seconds that a broker has for an answer."""


def read_properties(file: Path | None) -> dict[str, str]:
    """Settings of librdkafka: lines NAME=VALUE, and comments. Raises CliError."""
    if file is None:
        return {}
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals:
                raise CliError(f"{file}, line {number}: not NAME=VALUE")
            found[name.strip()] = value.strip()
    return found


class KafkaGroups:
    """Asks one cluster. All methods raise Unreachable if it does not answer, and CliError if it refuses."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        """Raises CliError."""
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise CliError(f"{error.name} is missing: pip install 'muster[pipeline]'") from error
        self.bootstrap = bootstrap
        self._error: type[Exception] = KafkaException
        try:
            self._admin: Any = AdminClient({"log_level": 0, **properties, "bootstrap.servers": bootstrap})
        except KafkaException as error:
            raise CliError(f"the settings for {bootstrap}: {error.args[0].str()}") from error

    def listed(self) -> list[GroupLine]:
        """All groups that may be seen, by name."""
        answer = self._result(self._admin.list_consumer_groups(request_timeout=ANSWER_S), "its groups")
        for problem in answer.errors:
            raise self._failure(problem, "the groups of a coordinator")
        return sorted((_line(each.group_id, each) for each in answer.valid), key=lambda each: each.group)

    def described(self, group: str, ends: KafkaGroups | None) -> GroupReport:
        """`ends`: the cluster that has the data, to be asked where partitions end; None: lag is not known. Raises
        CliError for a group that does not exist."""
        asked = self._admin.describe_consumer_groups([group], request_timeout=ANSWER_S)
        found = self._result(asked[group], f"group {group}")
        committed = self.committed(group)
        line = _line(group, found)
        if line.state == "DEAD" and not committed:
            raise CliError(f"{self.bootstrap} has no group {group}")
        members = {_member(each): _places(each.assignment) for each in found.members}
        places = {*committed, *(place for assigned in members.values() for place in assigned)}
        node = found.coordinator
        coordinator = f"{node.host}:{node.port}" if node is not None else "-"
        known = ends.ends(places) if ends is not None else {}
        return build_group(line, found.partition_assignor or "", coordinator, members, committed, known)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The ends of partitions; those that do not exist are left out."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(places, OffsetSpec.latest(), "the end")  # type: ignore[no-untyped-call]

    def edges(self, places: Iterable[Place]) -> dict[Place, Edges]:
        """The beginnings and ends of partitions; those that do not exist are left out."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        wanted = list(places)
        counts = self.partitions(sorted({topic for topic, _ in wanted}))
        # librdkafka fails as a whole if no partition has a leader.
        asked = [each for each in wanted if each[1] < counts.get(each[0], 0)]
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        starts, ends = self._offsets(asked, earliest, "the start"), self.ends(asked)
        return {place: Edges(start, ends[place]) for place, start in starts.items() if place in ends}

    def first_since(self, places: Iterable[Place], time_ms: int) -> dict[Place, int | None]:
        """The first offset whose record is not older than a time, in milliseconds since 1970; None if all are."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        found = self._offsets(places, OffsetSpec.for_timestamp(time_ms), "an offset by time")
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """The numbers of partitions of topics; topics that do not exist are left out."""
        from confluent_kafka import TopicCollection

        if not topics:
            return {}
        found = {}
        asked = TopicCollection(list(topics))
        for topic, answer in self._admin.describe_topics(asked, request_timeout=ANSWER_S).items():
            try:
                found[topic] = len(answer.result().partitions)
            except self._error as error:
                if "UNKNOWN_TOPIC" not in error.args[0].name():
                    raise self._failure(error, f"topic {topic}") from error
        return found

    def _offsets(self, places: Iterable[Place], which: Any, what: str) -> dict[Place, int]:
        from confluent_kafka import TopicPartition

        asked = {TopicPartition(*each): which for each in places}
        if not asked:
            return {}
        found = {}
        for place, answer in self._admin.list_offsets(asked, request_timeout=ANSWER_S).items():
            try:
                found[place.topic, place.partition] = int(answer.result().offset)
            except self._error as error:
                if "UNKNOWN_TOPIC" not in error.args[0].name():
                    raise self._failure(error, f"{what} of {place.topic}-{place.partition}") from error
        return found

    def states(self, groups: Sequence[str]) -> dict[str, str]:
        """Kafka's word for the state of each group; DEAD for one that does not exist."""
        asked = self._admin.describe_consumer_groups(list(groups), request_timeout=ANSWER_S) if groups else {}
        return {name: self._result(found, f"group {name}").state.name for name, found in asked.items()}

    def commit(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Commit for a group without members. Raises CliError if one offset is refused."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        places = [
            TopicPartition(topic, partition, each.offset, **_beside(each))
            for (topic, partition), each in offsets.items()
        ]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        answer = self._admin.alter_consumer_group_offsets(asked, request_timeout=ANSWER_S)[group]
        for each in self._result(answer, f"offsets of group {group}").topic_partitions:
            if each.error is not None:
                raise self._failure(each.error, f"the offset of {each.topic}-{each.partition} of group {group}")

    def committed(self, group: str) -> dict[Place, int]:
        """All offsets of a group."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = [ConsumerGroupTopicPartitions(group)]
        answer = self._admin.list_consumer_group_offsets(asked, request_timeout=ANSWER_S)[group]
        told = self._result(answer, f"offsets of group {group}").topic_partitions
        return {(each.topic, each.partition): each.offset for each in told if each.offset >= 0}

    def _result(self, future: Any, what: str) -> Any:
        try:
            return future.result()
        except self._error as error:
            raise self._failure(error, what) from error

    def _failure(self, error: Any, what: str) -> CliError:
        problem = error.args[0] if isinstance(error, self._error) else error
        if problem.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT_QUEUE"):
            hint = "run this where the pods are reached, or name a listener for clients outside (--listener)"
            return Unreachable(f"{self.bootstrap} does not answer ({what}): {problem.str()}; {hint}")
        return CliError(f"{self.bootstrap} refuses ({what}): {problem.str()}")


def _beside(committed: Committed) -> dict[str, Any]:
    """The text that is committed beside an offset. librdkafka takes a text up to a NUL, and has written an empty one as
    a single NUL: that is left out."""
    text = committed.metadata.partition("\0")[0]
    found: dict[str, Any] = {"metadata": text} if text else {}
    return found | ({"leader_epoch": committed.leader_epoch} if committed.leader_epoch >= 0 else {})


def _line(group: str, raw: Any) -> GroupLine:
    return GroupLine(group, raw.state.name, raw.type.name)


def _member(raw: Any) -> Member:
    assigned = tuple(f"{topic}-{partition}" for topic, partition in _places(raw.assignment))
    return Member(raw.member_id, raw.client_id, raw.host.lstrip("/"), raw.group_instance_id or "", assigned)


def _places(assignment: Any) -> tuple[Place, ...]:
    if assignment is None:
        return ()
    return tuple(sorted((each.topic, each.partition) for each in assignment.topic_partitions))
