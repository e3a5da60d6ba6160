"""Settings by name: the list of all settings, and their values from texts (`--config NAME=VALUE`, the `settings` of a
CoordinatorCluster)."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster_coordinator.setting_fields import INT32_MAX
from muster_coordinator.settings import CoordinatorSettings, ListenerSecuritySettings

LISTENER_PREFIX = "listener.name."


class SettingsError(ValueError):
    """A setting that cannot be taken; the message names it and says what would be right."""


@dataclass(frozen=True)
class Setting:
    """One setting: for checks, docs and completion. `section` and `attribute` say where it is in
    CoordinatorSettings."""

    name: str
    default: int | float | str | bool
    minimum: int
    maximum: int
    section: str
    attribute: str
    check: Callable[[str], object] | None  # of a text


def all_settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the docs."""
    return tuple(_all_settings())


def sections() -> Iterator[dataclasses.Field[Any]]:
    """The groups of settings: fields of CoordinatorSettings."""
    defaults = CoordinatorSettings()
    return (each for each in dataclasses.fields(defaults) if dataclasses.is_dataclass(getattr(defaults, each.name)))


def _all_settings() -> Iterator[Setting]:
    defaults = CoordinatorSettings()
    for section in sections():
        for f in dataclasses.fields(getattr(defaults, section.name)):
            if "kafka" not in f.metadata:
                continue  # nothing that can be set
            name = f.metadata["kafka"] or "muster." + f.name.replace("_", ".")
            minimum, maximum = f.metadata.get("minimum", 0), f.metadata.get("maximum", INT32_MAX)
            default: Any = f.default
            yield Setting(name, default, minimum, maximum, section.name, f.name, f.metadata.get("check"))


def parse_settings(values: Mapping[str, str]) -> CoordinatorSettings:
    """Settings from texts by name. Raises SettingsError for an unknown name (with the nearest one), a value that is no
    number, or one that is out of range."""
    known = {s.name: s for s in all_settings()}
    chosen: _Chosen = {}
    of_listeners: dict[str, _Chosen] = {}
    for name, text in values.items():
        listener, plain_name = _listener_of(name)
        setting = known.get(plain_name)
        if setting is None:
            near = difflib.get_close_matches(plain_name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; docs/configuration.md lists the names"
            raise SettingsError(f"unknown setting {name!r}{hint}")
        if listener and (setting.section not in ("tls", "sasl") or setting.attribute == "users_file"):
            raise SettingsError(f"{name}: {plain_name} is not set for one listener")
        sections = of_listeners.setdefault(listener, {}) if listener else chosen
        sections.setdefault(setting.section, {})[setting.attribute] = _parse(setting, text)
    defaults = CoordinatorSettings()
    try:
        settings = dataclasses.replace(
            defaults, **{s: dataclasses.replace(getattr(defaults, s), **v) for s, v in chosen.items()}
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return dataclasses.replace(
        settings, by_listener={listener: _overridden(settings, changes) for listener, changes in of_listeners.items()}
    )


_Chosen = dict[str, dict[str, Any]]
"""Section -> attribute -> value."""


def _listener_of(name: str) -> tuple[str, str]:
    """(listener, name of the setting) of `listener.name.<listener>.<setting>`; ("", name) of others."""
    if not name.startswith(LISTENER_PREFIX):
        return "", name
    listener, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
    return listener, setting


def _overridden(settings: CoordinatorSettings, changes: _Chosen) -> ListenerSecuritySettings:
    return ListenerSecuritySettings(
        dataclasses.replace(settings.tls, **changes.get("tls", {})),
        dataclasses.replace(settings.sasl, **changes.get("sasl", {})),
    )


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping; raises SettingsError for one without `=`."""
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{assignment!r} is not of the form NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def _parse(setting: Setting, text: str) -> int | float | str:
    if setting.check is not None:
        try:
            setting.check(text)
        except ValueError as error:
            raise SettingsError(f"{setting.name}={text!r}: {error}") from None
        return text
    if isinstance(setting.default, bool):
        if text not in ("true", "false"):
            raise SettingsError(f"{setting.name}={text!r}: true or false is needed")
        return text == "true"
    try:
        value = type(setting.default)(text)
    except ValueError:
        needed = "whole number" if isinstance(setting.default, int) else "number"
        raise SettingsError(f"{setting.name}={text!r}: a {needed} is needed") from None
    assert not isinstance(value, str)  # a text has a check
    if not setting.minimum <= value <= setting.maximum:
        raise SettingsError(f"{setting.name}={value}: must lie in [{setting.minimum}, {setting.maximum}]")
    return value
