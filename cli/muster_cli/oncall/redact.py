"""Takes out of objects, logs and metrics what is nobody's business: passwords, tokens, keys. Pure.

Names stay: of Secrets, users, groups, topics, hosts. Without them nobody could tell what is said.
"""

from __future__ import annotations

import re
from typing import Any

from muster_operator.kube.client import Json

GONE = "<redacted>"

_SENSITIVE = re.compile(
    r"(pass(word|wd|phrase)?|jaas([._]config)?|credentials?|private.?key|api.?key|access.?key|secret|token)$", re.I
)
"""Ends of the names of settings, environment variables and fields whose values are secret."""
_NAMES_A_SECRET = re.compile(r"^([a-z]+S|s)ecret$")
"""Fields of our specs that have the name of a Secret, such as usersSecret, and not what is in it."""

_ASSIGNED = r"""(?:\\*["'])?\s*[=:]\s*"""
_VALUE = r"""(?:\\*"[^"\n]*"|\\*'[^'\n]*'|[^\s,;"'}]+)"""
_TEXTS = (
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.S), GONE),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?"), GONE),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}", re.I), rf"\1 {GONE}"),
    (re.compile(r"(://[^/\s:@]+:)[^/\s@]+@"), rf"\1{GONE}@"),
    (
        re.compile(
            r"((?:pass(?:word|wd|phrase)|jaas[._]config|credentials?|private.?key|access.?key|secret)"
            + _ASSIGNED
            + r")"
            + _VALUE,
            re.I,
        ),
        rf"\1{GONE}",
    ),
    (re.compile(r"(token" + _ASSIGNED + r")(?!\d+\b)" + _VALUE, re.I), rf"\1{GONE}"),
)
"""The secrets that are taken out of any text: PEM blocks, JSON Web Tokens, headers, passwords in addresses,
assignments. A token that is a number orders operators, and stays."""
_LEFT_OUT = ("managedFields",)
_ANNOTATIONS_LEFT_OUT = ("kubectl.kubernetes.io/last-applied-configuration",)


def redacted_text(text: str) -> str:
    """Takes secrets out of a log, a message or a setting."""
    for pattern, instead in _TEXTS:
        text = pattern.sub(instead, text)
    return text


def redacted(raw: Json) -> Json:
    """An object of the API server. Raises ValueError for a Secret: none is ever written, redacted or not."""
    if raw.get("kind") == "Secret":
        raise ValueError("a Secret does not belong here")
    cleaned: Json = _cleaned(raw, "")
    return cleaned


def _cleaned(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return _cleaned_dict(value)
    if isinstance(value, list):
        return [_cleaned(each, name) for each in value]
    if isinstance(value, str):
        return GONE if value and _is_sensitive(name) else redacted_text(value)
    return value


def _cleaned_dict(value: dict[str, Any]) -> dict[str, Any]:
    if isinstance(value.get("name"), str) and isinstance(value.get("value"), str) and _SENSITIVE.search(value["name"]):
        return {**value, "value": GONE}  # a variable of a container
    return {
        name: _cleaned(each, name)
        for name, each in value.items()
        if name not in _LEFT_OUT and name not in _ANNOTATIONS_LEFT_OUT
    }


def _is_sensitive(name: str) -> bool:
    return _SENSITIVE.search(name) is not None and _NAMES_A_SECRET.match(name) is None
