"""Settings come as texts under Kafka's names; what cannot be taken is refused with a hint."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from muster_coordinator.settings_by_name import SettingsError, all_settings, parse_assignments, parse_settings

ROOT = Path(__file__).parents[2]


def test_values_land_in_their_sections() -> None:
    settings = parse_settings({"group.max.size": "7", "max.connections": "5", "muster.journal.bytes": "2097152"})
    assert settings.groups.max_size == 7
    assert parse_settings({"log.cleaner.min.cleanable.ratio": "0.25"}).cleaner.log_cleaner_min_cleanable_ratio == 0.25
    assert parse_settings({"muster.archive.dir": "/archive"}).cleaner.archive_dir == "/archive"
    assert settings.listener.max_connections == 5
    assert settings.shard.journal_bytes == 2_097_152
    assert parse_settings({"muster.self.nomination.after.ms": "0"}).peers.self_nomination_after_ms == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("group.max.sise", "1", r"did you mean group\.max\.size\?"),
        ("no.such.thing.at.all.anywhere", "1", r"docs/configuration\.md"),
        ("group.max.size", "many", "whole number"),
        ("log.cleaner.min.cleanable.ratio", "much", "a number is needed"),
        ("log.cleaner.min.cleanable.ratio", "1.5", r"must lie in \[0, 1\]"),
        ("log.cleaner.min.cleanable.ratio", "nan", r"must lie in \[0, 1\]"),
        ("muster.archive.dir", "not/absolute", "an absolute path"),
        ("max.connections", "0", r"must lie in \[1, 2147483647\]"),
        ("group.max.session.timeout.ms", "1", "must not be below"),
        ("listener.name.x.group.max.size", "1", r"group\.max\.size is not set for one listener"),
        ("listener.name.x.muster.users.file", "/u", r"muster\.users\.file is not set for one listener"),
        ("listener.name.x.ssl.client.aut", "none", r"did you mean ssl\.client\.auth"),
        ("listener.name.x.ssl.client.auth", "maybe", "none, requested or required"),
        ("listener.name.x", "1", "unknown setting"),
        ("muster.upstream.group.lag.max.groups", "5", r"needs muster\.upstream\.bootstrap"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_settings({name: value})


def test_setting_of_one_listener_counts_for_that_one_before_that_of_all() -> None:
    settings = parse_settings(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.outside.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.outside.muster.listener.tls.dir": "/tls",
            "connections.max.reauth.ms": "7",
        }
    )
    outside, others = settings.of_listener("outside"), settings.of_listener("other")
    assert (outside.sasl.sasl_enabled_mechanisms, outside.tls.listener_tls_dir) == ("PLAIN", "/tls")
    assert (others.sasl.sasl_enabled_mechanisms, others.tls.listener_tls_dir) == ("SCRAM-SHA-256", "")
    assert outside.sasl.connections_max_reauth_ms == others.sasl.connections_max_reauth_ms == 7


def test_assignment_without_a_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="NAME=VALUE"):
        parse_assignments(["group.max.size"])


def test_defaults_of_kafka_are_kept() -> None:
    """Kafka 4.1 (reference, section 5.1): what an administrator knows stays true."""
    defaults = {s.name: s.default for s in all_settings()}
    assert defaults["offsets.topic.segment.bytes"] == 104_857_600
    assert defaults["offsets.commit.timeout.ms"] == 5000
    assert defaults["connections.max.idle.ms"] == 600_000
    assert defaults["group.initial.rebalance.delay.ms"] == 3000
    assert defaults["offsets.retention.minutes"] == 10_080
    assert defaults["log.cleaner.min.cleanable.ratio"] == 0.5
    assert defaults["log.cleaner.delete.retention.ms"] == 86_400_000
    assert defaults["log.cleaner.backoff.ms"] == 15_000


def test_names_are_unique() -> None:
    names = [s.name for s in all_settings()]
    assert len(names) == len(set(names))


def test_configuration_page_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("render_configuration", ROOT / "hack" / "render_configuration.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == module.render(), "run: python hack/render_configuration.py --write"
