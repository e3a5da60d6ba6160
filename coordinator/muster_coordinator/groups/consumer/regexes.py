"""Regular expressions of consumer groups: RE2, as in Kafka, against whole names of topics (KIP-848).

Kafka's library is RE2/J. Google's own takes `\\C`, two groups of one name, and some braces that repeat nothing as
text, which RE2/J refuses; it refuses a backslash before a letter beyond ASCII, which is that letter there, and programs
that are too large, which RE2/J tries to build.
Source: Utils#throwIfRegularExpressionIsInvalid, TopicRegexResolver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import re2

_WORDS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""Messages of RE2 -> those of RE2/J, which a client is told; all others are alike."""


def error_of(regex: str) -> str | None:
    """Kafka's message about an expression that it refuses (INVALID_REGULAR_EXPRESSION); None: it is a good one."""
    try:
        _compiled(regex)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace").partition(": ")[0]
        return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_WORDS.get(said, said)}."
    return None


def resolve(
    regexes: Iterable[str], topics: Iterable[str], may_describe: Callable[[str], bool] | None = None
) -> dict[str, tuple[str, ...]]:
    """Expression -> the topics whose whole name it matches, sorted, of those that may be described. Nothing for an
    expression that is not valid. Takes time in proportion to all names, for each of the expressions."""
    names = tuple(topics)
    matching = {regex: [name for name in names if pattern.fullmatch(name)] for regex, pattern in _patterns(regexes)}
    if may_describe is not None:
        allowed = {name: may_describe(name) for name in {each for found in matching.values() for each in found}}
        matching = {regex: [name for name in found if allowed[name]] for regex, found in matching.items()}
    return {regex: tuple(sorted(matching.get(regex, ()))) for regex in regexes}


def _patterns(regexes: Iterable[str]) -> Iterable[tuple[str, Any]]:
    for regex in regexes:
        try:
            yield regex, _compiled(regex)
        except re2.error:
            continue  # a log of another release has it


@lru_cache(maxsize=1024)
def _compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)
