"""Regular expressions of a group: when their topics are looked for, and what becomes of the answer.

Source: GroupMetadataManager#maybeUpdateRegularExpressions and #handleRegularExpressionsResult.
"""

from __future__ import annotations

from enum import Enum

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.errors import GroupError
from muster_coordinator.groups.consumer.group import FIRST_EPOCH, ConsumerGroup
from muster_coordinator.groups.consumer.regexes import error_of
from muster_coordinator.groups.consumer.subscriptions import metadata_hash
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.effects import Effects
from muster_coordinator.records.consumer_group import (
    METADATA_TYPE,
    REGEX_TYPE,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegexValue,
)
from muster_coordinator.requests.consumer_groups import RegexesResolved
from muster_coordinator.state_machine import NOTHING, Result


class RegexChange(Enum):
    """The change that a heartbeat made to the expression of its member."""

    NONE = "none"
    UNRESOLVED = "unresolved"  # its topics are not known yet: an assignment now would be out of date soon
    RESOLVED = "resolved"


def change_regex(
    group: ConsumerGroup, before: ConsumerGroupMemberValue, after: ConsumerGroupMemberValue, effects: Effects
) -> RegexChange:
    """Raises GroupError INVALID_REGULAR_EXPRESSION."""
    old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
    if old == new:
        return RegexChange.NONE
    if old and group.regex_members.get(old) == 1:
        effects.record(group.record(REGEX_TYPE, None, old))
    if new:
        if new not in group.regex_members:
            message = error_of(new)
            if message is not None:
                raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
            return RegexChange.UNRESOLVED
        return RegexChange.RESOLVED if new in group.regexes else RegexChange.UNRESOLVED
    return RegexChange.RESOLVED if old else RegexChange.UNRESOLVED


def to_look_for(
    state: ConsumerTables,
    group: ConsumerGroup,
    before: ConsumerGroupMemberValue,
    after: ConsumerGroupMemberValue,
    now_ms: int,
) -> tuple[str, ...]:
    """The expressions whose topics are to be looked for now, all of the group at a time; () : none. Of a group all are
    resolved together, so that it is assigned anew once."""
    live = state.live(group.group_id)
    old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
    if live.resolving or not (group.regex_members or new):
        return ()
    refreshed_ms = max([each.timestamp_ms for each in group.regexes.values()], default=None)
    if refreshed_ms is not None and 0 <= now_ms - refreshed_ms <= state.config.regex_refresh_min_interval_ms:
        return ()
    counts = dict(group.regex_members)
    if old and old in counts:
        counts[old] -= 1
    if new:
        counts[new] = counts.get(new, 0) + 1
    regexes = tuple([regex for regex, count in counts.items() if count])
    is_old = refreshed_ms is None or now_ms - refreshed_ms > state.config.regex_refresh_interval_ms
    if is_old or live.regex_version != state.topics.version or any(each not in group.regexes for each in regexes):
        return regexes
    return ()


def take_resolved(state: ConsumerTables, event: RegexesResolved) -> Result:
    """Records of the topics that were found. The group epoch goes up if they, or what these topics are, changed."""
    group = state.groups.get(event.group_id)
    if group is None:
        return NOTHING
    live = state.live(event.group_id)
    live.resolving = False
    if event.topics is None:
        return NOTHING
    live.regex_version = event.version
    effects = Effects()
    regexes = dict(group.regexes)
    changed = False
    for regex, topics in event.topics:
        if regex not in group.regex_members:
            continue
        known = group.regexes.get(regex)
        changed = changed or (() if known is None else known.topics) != topics
        regexes[regex] = ConsumerGroupRegexValue(topics, event.version, event.resolved_ms)
        effects.record(group.record(REGEX_TYPE, regexes[regex], regex))
    new_hash = metadata_hash(group, state.topics, regexes=regexes)
    if changed or new_hash != group.metadata_hash:
        live.checked_version = state.topics.version
        epoch = max(group.epoch, FIRST_EPOCH) + 1
        effects.record(group.record(METADATA_TYPE, ConsumerGroupMetadataValue(epoch, new_hash)))
    return effects.result()
