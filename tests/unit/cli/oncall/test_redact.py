"""What a bundle must not carry away, and what it must, to be of use."""

from __future__ import annotations

import json

import pytest

from muster_cli.oncall.redact import GONE, redacted, redacted_text

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
PEM = "-----BEGIN EC PRIVATE KEY-----\nhunter2\nhunter2\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        PEM.partition("-----END")[0],
        f"a token {JWT} was refused",
        "Authorization: Bearer hunter2hunter2",
        "authorization: basic hunter2hunter2",
        "http://alice:hunter2@proxy:3128",
        "password=hunter2",
        "sasl.jaas.config=org.x.PlainLoginModule required username='a' password=\"hunter2 hunter2\";",
        'ssl.keystore.password = "hunter2 hunter2"',
        '{"password": "hunter2", "user": "alice"}',
        r'{"body": "{\"password\": \"hunter2\"}"}',
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "client.secret: hunter2",
        "metrics-token=hunter2",
        "password='hunter2 hunter2'",
    ],
)
def test_secrets_in_texts_are_taken_out(text: str) -> None:
    told = redacted_text(text)
    assert "hunter2" not in told
    assert JWT not in told
    assert GONE in told


@pytest.mark.parametrize(
    "text",
    [
        'secret "small-pod-tls" not found',
        '{"event": "leading", "token": 7, "lease": "muster-operator"}',
        "pod orders-0 is down: connection refused",
        "http://orders-bootstrap.shop.svc:9092/x",
        "the password of user alice was refused",
        "group billing, partition 3, epoch 12",
    ],
)
def test_what_says_what_is_wrong_stays(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize(
    "raw",
    [
        {"env": [{"name": "MUSTER_UPSTREAM_PASSWORD", "value": "hunter2"}]},
        {"env": [{"name": "secret", "value": "hunter2"}]},
        {"env": [{"name": "MUSTER_CONFIG", "value": "a=b\nmuster.upstream.sasl.password=hunter2\nc=d"}]},
        {"spec": {"settings": {"muster.upstream.sasl.password": "hunter2"}}},
        {"spec": {"settings": {"muster.upstream.sasl.jaas.config": "hunter2"}}},
        {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}}},
        {"metadata": {"managedFields": [{"fieldsV1": {"hunter2": {}}}]}},
        {"spec": {"args": ["--password=hunter2"]}},
        {"status": {"conditions": [{"message": "password: hunter2"}]}},
    ],
)
def test_secrets_in_objects_are_taken_out_at_any_depth(raw: dict[str, object]) -> None:
    assert "hunter2" not in json.dumps(redacted(raw))


def test_names_of_secrets_stay_in_specs() -> None:
    raw = {
        "spec": {
            "security": {"podSecret": "pods"},
            "access": {"usersSecret": "users"},
            "listeners": [{"name": "out", "tls": {"secret": "tls"}}],
            "template": {"volumes": [{"name": "tls", "secret": {"secretName": "pods", "optional": True}}]},
        }
    }
    assert redacted(raw) == raw


def test_secret_is_refused_whatever_is_in_it() -> None:
    with pytest.raises(ValueError, match="Secret"):
        redacted({"kind": "Secret", "data": {}})
