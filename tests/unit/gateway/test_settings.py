"""Settings, and the page that is rendered from them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from muster_gateway.routes import Routes, prefixes_of
from muster_gateway.settings import SettingsError, parse_assignments, parse_settings

ROOT = Path(__file__).parents[3]
NEEDED = ["upstream.bootstrap.servers=kafka-0:9092, [::1]:9093"]
AT_KAFKA = ["upstream.security.protocol=SASL_SSL", "upstream.sasl.mechanism=PLAIN", "upstream.sasl.dir=/a"]
AT_MUSTER = ["muster.security.protocol=SASL_SSL", "muster.sasl.mechanism=PLAIN", "muster.sasl.dir=/a"]

MOVABLE = [
    "muster.movable.groups=k-",
    "muster.bootstrap.servers=muster-0:9092",
    "muster.api.servers=muster-0:9640",
    "muster.transactions=1",
]


@pytest.mark.parametrize(
    ("assignments", "asks", "passes"),
    [
        ([], False, False),
        (["upstream.security.protocol=SSL"], False, False),
        (AT_KAFKA, False, True),
        ([*AT_KAFKA, "sasl.enabled.mechanisms=SCRAM-SHA-512", "muster.users.file=/u"], True, False),
        ([*AT_KAFKA, "listener.tls.dir=/t", "ssl.client.auth=required", "upstream.tls.dir=/c"], True, False),
    ],
)
def test_one_side_asks_clients_who_they_are(assignments: list[str], asks: bool, passes: bool) -> None:
    settings = parse_settings(parse_assignments([*NEEDED, *assignments]))
    assert (settings.asks_clients, settings.logins_pass) == (asks, passes)


def test_settings_have_their_defaults_and_take_values() -> None:
    settings = parse_settings(parse_assignments([*NEEDED, "park.ms=50"]))
    assert (settings.park_ms, settings.max_in_flight, settings.groups) == (50, 64, "")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ([], "upstream.bootstrap.servers is needed"),
        (["upstream.bootstrap.servers=kafka"], "not of the form HOST:PORT"),
        (["upstream.bootstrap.servers=kafka:0"], "not of the form HOST:PORT"),
        ([*NEEDED, "muster.groups=a"], "muster.bootstrap.servers is needed"),
        ([*NEEDED, "park.msec=1"], "did you mean park.ms?"),
        ([*NEEDED, "park.ms=x"], "is not a number"),
        ([*NEEDED, "park.ms=600001"], "is not between 0 and 600000"),
        ([*NEEDED, "park.ms"], "not of the form NAME=VALUE"),
        ([*NEEDED, "upstream.security.protocol=TLS"], "SASL_PLAINTEXT or SASL_SSL is needed"),
        ([*NEEDED, "upstream.security.protocol=SASL_SSL"], "needs upstream.sasl.mechanism and upstream.sasl.dir"),
        ([*NEEDED, "muster.sasl.mechanism=PLAIN"], "need muster.security.protocol=SASL_SSL"),
        ([*NEEDED, "upstream.ssl.truststore.location=ca.crt"], "an absolute path is needed"),
        ([*NEEDED, "upstream.security.protocol=SSL", "upstream.tls.dir=/c"], "upstream.tls.dir needs"),
        ([*NEEDED, "ssl.client.auth=requested"], "none or required is needed"),
        ([*NEEDED, "ssl.client.auth=required"], "needs listener.tls.dir"),
        ([*NEEDED, "sasl.enabled.mechanisms=PLAIN", "muster.users.file=/u"], "there is no TLS"),
        ([*NEEDED, "sasl.enabled.mechanisms=SCRAM-SHA-512"], "needs muster.users.file"),
        ([*NEEDED, "sasl.enabled.mechanisms=OAUTHBEARER"], "leave logins by OAUTHBEARER to the brokers"),
        ([*NEEDED, "muster.act.for.clients=1"], "needs muster.sasl.mechanism to be PLAIN or SCRAM"),
        ([*NEEDED, *AT_MUSTER, "muster.act.for.clients=1"], "nobody asks clients who they are"),
        ([*NEEDED, *AT_MUSTER, "muster.movable.groups=k-"], "needs muster.bootstrap.servers, and"),
        ([*NEEDED, "muster.api.port=9640"], "muster.api.port needs muster.bootstrap.servers, and"),
        ([*NEEDED, *MOVABLE[:2]], "needs muster.bootstrap.servers, and"),
        ([*NEEDED, *MOVABLE, "muster.transactions=0"], "needs muster.transactions=1"),
        ([*NEEDED, *MOVABLE, "muster.api.cluster=a/b"], "muster.api.tls.dir and muster.api.cluster need each other"),
    ],
)
def test_what_cannot_be_taken_is_named(assignments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("?", r"\?")):
        parse_settings(parse_assignments(assignments))


@pytest.mark.parametrize(
    ("prefixes", "group", "here"),
    [([], "a", False), (["a", "b-"], "b", False), (["a", "b-"], "b-1", True), (["*"], "any", True), (["*"], "", True)],
)
def test_groups_are_served_by_prefix(prefixes: list[str], group: str, here: bool) -> None:
    routes = Routes(prefixes_of(", ".join(prefixes)))
    assert routes.is_served(group) is here
    assert routes.is_at_muster(group) is here
    assert bool(routes) is bool(prefixes)


def test_the_page_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("render_gateway", ROOT / "hack" / "render_gateway.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "gateway.md").read_text() == module.render(), "run: python hack/render_gateway.py --write"
