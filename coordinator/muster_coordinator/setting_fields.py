"""Fields of settings: numbers, flags and texts with Kafka's name and a range or a check; and lists within texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

INT32_MAX = 2**31 - 1


def number(default: int, kafka_name: str | None, minimum: int, maximum: int = INT32_MAX) -> int:
    """A field with Kafka's configuration name (None: Kafka has none) and the range of its values."""
    value: int = field(default=default, metadata={"kafka": kafka_name, "minimum": minimum, "maximum": maximum})
    return value


def ratio(default: float, kafka_name: str) -> float:
    """A field whose value is a part of 1."""
    value: float = field(default=default, metadata={"kafka": kafka_name, "minimum": 0, "maximum": 1})
    return value


def flag(default: bool, kafka_name: str | None) -> bool:
    """A field that is `true` or `false`."""
    value: bool = field(default=default, metadata={"kafka": kafka_name})
    return value


def path() -> str:
    """An absolute path, or empty; Kafka has no setting for it."""
    value: str = field(default="", metadata={"kafka": None, "check": check_path})
    return value


def text(kafka_name: str | None, check: Callable[[str], object], default: str = "") -> str:
    """A text. `check` raises ValueError for one that cannot be taken."""
    value: str = field(default=default, metadata={"kafka": kafka_name, "check": check})
    return value


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """(host, port) of each; IPv6 addresses are in brackets. Raises ValueError."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = each.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) <= 65_535:
            raise ValueError(f"{each!r} is not of the form HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


def parse_prefixes(text: str) -> tuple[str, ...]:
    """The beginnings of names, between commas; `*`: of all names."""
    return tuple("" if part.strip() == "*" else part.strip() for part in text.split(",") if part.strip())


def check_client_auth(text: str) -> None:
    if text not in ("none", "requested", "required"):
        raise ValueError("none, requested or required is needed")


def check_key_url(text: str) -> None:
    if text and not text.startswith(("https://", "file:///")):
        raise ValueError("https://... or file:///... is needed")


def check_name(text: str) -> None:
    if not text:
        raise ValueError("a name is needed")


def parse_names(text: str) -> tuple[str, ...]:
    """Texts between commas."""
    return tuple([part.strip() for part in text.split(",") if part.strip()])


def check_path(text: str) -> None:
    if text and not text.startswith("/"):
        raise ValueError("an absolute path is needed")
