"""A real Prometheus on this machine, which finds pods as the PodMonitors of config/ say, and has the shipped rules."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kube import REPOSITORY, kubectl

MONITORS = REPOSITORY / "config" / "monitoring" / "pod-monitors.yaml"
RULES = REPOSITORY / "config" / "monitoring" / "alerts.yaml"
START_S = 60.0
META = "__meta_kubernetes_"
FOLLOW_S = 1.0
UNITS = {"s": 1, "m": 60, "h": 3600}


class Prometheus:
    """The HTTP API of a running one."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def firing(self, name: str) -> list[dict[str, str]]:
        """The labels of the alerts of this name that fire now."""
        found = self._get("/api/v1/alerts")["alerts"]
        return [each["labels"] for each in found if (each["labels"]["alertname"], each["state"]) == (name, "firing")]

    def fired(self, name: str) -> list[dict[str, str]]:
        """The labels of those that have fired in the last hour, also if they went out since."""
        found = self.query(f'max_over_time(ALERTS{{alertname="{name}",alertstate="firing"}}[1h])')
        return [each["metric"] for each in found]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("/api/v1/query", query=expression)["result"]
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]


def shortened(expression: str, seconds_of_a_minute: int) -> str:
    """PromQL with shorter windows: those in brackets and those of `offset`."""

    def short(found: re.Match[str]) -> str:
        seconds = int(found[2]) * UNITS[found[3]] * seconds_of_a_minute // 60
        return f"{found[1]}{seconds}s"

    return re.sub(r"(\[|offset )(\d+)([smh])", short, expression)


def short_rules(seconds_of_a_minute: int) -> dict[str, Any]:
    """The shipped rules with every `for` and every window shortened alike, and nothing else changed."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]["groups"]
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = shortened(rule["expr"], seconds_of_a_minute)
            if "for" in rule:
                rule["for"] = f"{int(rule['for'].removesuffix('m')) * seconds_of_a_minute}s"
    return {"groups": groups}


def scrape_configs(targets: Path) -> list[dict[str, Any]]:
    """The scrape configurations that the Prometheus operator makes of the PodMonitors: pods, port, and labels."""
    monitors = [each for each in yaml.safe_load_all(MONITORS.read_text(encoding="utf-8")) if each]
    return [_job(each, targets) for each in monitors]


def _job(monitor: dict[str, Any], targets: Path) -> dict[str, Any]:
    spec = monitor["spec"]
    kept = dict(spec["selector"].get("matchLabels", {}))
    for each in spec["selector"].get("matchExpressions", ()):
        assert each["operator"] == "In", each
        kept[each["key"]] = "|".join(each["values"])
    (endpoint,) = spec["podMetricsEndpoints"]
    keep = {f"{META}pod_label_{_as_label(key)}": each for key, each in kept.items()}
    keep |= {f"{META}pod_container_port_name": endpoint["port"]}
    named = {"namespace": "namespace", "pod": "pod_name", "container": "pod_container_name"}
    return {
        "job_name": monitor["metadata"]["name"],
        "file_sd_configs": [{"files": [str(targets)]}],
        "relabel_configs": [
            {"source_labels": [f"{META}pod_phase"], "regex": "Failed|Succeeded", "action": "drop"},
            *({"source_labels": [label], "regex": regex, "action": "keep"} for label, regex in keep.items()),
            *({"source_labels": [f"{META}{source}"], "target_label": label} for label, source in named.items()),
        ],
    }


def _as_label(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]", "_", name)


def pods_as_targets() -> list[dict[str, Any]]:
    """Each port of each pod, with the labels of Prometheus' own discovery of Kubernetes, which Debian's build lacks."""
    found = json.loads(kubectl("get", "pods", "-A", "-o", "json").stdout)["items"]
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {
                **{f"{META}pod_label_{_as_label(key)}": each for key, each in pod["metadata"]["labels"].items()},
                f"{META}namespace": pod["metadata"]["namespace"],
                f"{META}pod_name": pod["metadata"]["name"],
                f"{META}pod_phase": pod["status"]["phase"],
                f"{META}pod_container_name": container["name"],
                f"{META}pod_container_port_name": port.get("name", ""),
            },
        }
        for pod in found
        if pod["status"].get("podIP") and "labels" in pod["metadata"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    ]


@contextmanager
def followed_pods(targets: Path) -> Iterator[None]:
    """Keeps the file as the pods are."""
    ended = threading.Event()

    def follow() -> None:
        before = None
        while not ended.wait(FOLLOW_S):
            with suppress(subprocess.SubprocessError):  # the API server is busy: the next look tells
                now = pods_as_targets()
                if now != before:
                    part = targets.with_suffix(".part")
                    part.write_text(json.dumps(now))
                    part.rename(targets)
                    before = now

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def running_prometheus(folder: Path, seconds_of_a_minute: int) -> Iterator[Prometheus]:
    """Scrapes and evaluates each second, with what it says in `folder`/log. Skips the test where there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Prometheus: apt-get install prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(short_rules(seconds_of_a_minute), width=10_000))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": scrape_configs(folder / "targets.json"),
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = _free_port()
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        followed_pods(folder / "targets.json"),
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as child,
    ):
        try:
            prometheus = Prometheus(port)
            deadline = time.monotonic() + START_S
            while not prometheus.is_ready():
                is_starting = child.poll() is None and time.monotonic() < deadline
                assert is_starting, (folder / "log").read_text()
                time.sleep(0.1)
            yield prometheus
        finally:
            child.terminate()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
