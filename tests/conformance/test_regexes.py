"""Regular expressions of consumer groups beside RE2/J, the library that Kafka has: the same names match, the same
expressions are refused in the same words."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.java_lines import JavaLines
from tests.support.kafka_broker import why_no_kafka_yet

from muster_coordinator.groups.consumer.regexes import error_of, resolve

NAMES = (
    "foo", "FOO", "foobar", "bar", "a", "aa", "ab", "f", "oo", "boo", "ü", "\U0001f600", "1", "12", "α", "x", "f.oo",
    "-", "__consumer_offsets", "foo-1", "foo_2",
)  # fmt: skip
GOOD = (
    "foo.*", "", ".*", "(?i)FOO", "foo|bar", "^foo$", "[^f]oo", r"\Qf.oo\E", r"foo\z", "(?s).*", r"\Bfoo", r"\bfoo\b",
    r"\p{L}+", r"\pL+", r"\p{Greek}", "(?m)^foo$", "fo{2}", "(?-i)foo", "(?U)fo*", r"\x66oo", r"\x{66}oo", r"\066oo",
    r"[\d]", r"\d+", "[]a]", "(?:foo)", "(?P<n>foo)", "(?<n>foo)", "ü", "\U0001f600", "[à-ÿ]", r"\P{L}", "x{0}x",
    "(|foo)", r"\a", "a{,2}", r"f\.oo", "fo+?", "(a|b)*?", "[[:alpha:]]+", r"[\w-]+", "__.*",
)  # fmt: skip
BAD = (
    "(", "[a", "*", "a**", "\\", "(?=a)", "a{1001}", "[z-a]", r"\8", ")", "(?P<n", "a{2,1}", "[[:foo:]]", r"\pX",
    "x{1000}{1000}", r"foo\Z", "foo(?#c)", "x*+", r"[a-\d]", "(?x)f oo", "[]", "[^]", "(?P=n)", "(?P<>a)", "(?<n",
    "(?z)a", "(?i", r"\N", "a|*", "(*)", "+", "?", "(?", "foo\\", r"\p{", r"\cA", r"\e", r"\h", r"\G",
)  # fmt: skip
PIECES = (
    *"fobax1.-|()[]^$*+?\\",
    "foo",
    "[a-z]",
    r"\d",
    r"\w",
    "(?:",
    "{1,2}",
    "{2}",
    "(?i)",
    r"\p{L}",
    "[^o]",
    ".*",
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
]


def ours(regex: str) -> str | list[str]:
    """As `Regexes.java` answers."""
    error = error_of(regex)
    if error is None:
        found = resolve([regex], NAMES)[regex]
        return [name for name in NAMES if name in found]
    before, after = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ", "."
    assert error.startswith(before)
    assert error.endswith(after)
    return error[len(before) : -len(after)]


def test_expressions_match_and_are_refused_as_by_kafka() -> None:
    with JavaLines("Regexes.java") as kafka:
        for regex in GOOD:
            assert error_of(regex) is None, regex
            assert ours(regex) == kafka.ask([regex, NAMES]), regex
        for regex in BAD:
            assert isinstance(ours(regex), str), regex
            assert ours(regex) == kafka.ask([regex, NAMES]), regex


def test_drawn_expressions_match_and_are_refused_as_by_kafka() -> None:
    random, refused = Random(7), 0
    with JavaLines("Regexes.java") as kafka:
        for _ in range(3000):
            regex = "".join(random.choice(PIECES) for _ in range(random.randint(1, 7)))
            mine, theirs = ours(regex), kafka.ask([regex, NAMES])
            if isinstance(theirs, str):  # of several errors each names the one that it comes upon first
                assert isinstance(mine, str), regex
                refused += 1
            else:
                assert mine == theirs, regex
    assert 500 < refused < 2500
