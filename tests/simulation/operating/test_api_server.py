"""The fake API server keeps the rules of a real one that the operator rests on, and fails as one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.simulation.injected import Injected
from tests.simulation.operating.objects import ApiObjects, Change, Json, Target
from tests.simulation.operating.server import ApiServer, Stream, Unanswered
from tests.simulation.options import Options
from tests.simulation.world import World

TOPICS = "/apis/muster.dev/v1alpha1/namespaces/ns/offsetstopics"
PARTITIONS = "/apis/muster.dev/v1alpha1/namespaces/ns/offsetspartitions"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


class Fixture:
    """`told`: events of all watches, as they would see them."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self.objects = ApiObjects(lambda: "now", self.told.append)

    def do(self, method: str, path: str, body: Json | None = None, **query: str) -> tuple[int, Json]:
        answer = self.objects.handle(method, path, query, body)
        return answer.code, answer.body

    def create(self, path: str, name: str, spec: Json | None = None, **more: Any) -> Json:
        code, raw = self.do("POST", path, {"metadata": {"name": name, **more}, "spec": spec or {}, "status": {"a": 1}})
        assert code == 201
        return raw


@pytest.fixture
def api() -> Fixture:
    return Fixture()


def test_paths_name_kind_scope_object_and_subresource() -> None:
    assert Target.of(f"{TOPICS}/t/status") == Target("offsetstopics", "ns", "t", "status")
    assert Target.of("/api/v1/nodes/n?resourceVersion=0") == Target("nodes", "", "n", "")
    assert Target.of("/api/v1/pods") == Target("pods", "", "", "")


def test_creation_takes_no_status_and_a_name_once(api: Fixture) -> None:
    raw = api.create(TOPICS, "t")
    assert "status" not in raw
    assert raw["metadata"]["generation"] == 1
    assert api.do("POST", TOPICS, {"metadata": {"name": "t"}, "spec": {}})[0] == 409


def test_status_is_replaced_only_under_the_version_that_was_read(api: Fixture) -> None:
    raw = api.create(TOPICS, "t")
    code, first = api.do("PUT", f"{TOPICS}/t/status", {**raw, "status": {"led": 1}})
    assert (code, first["status"]) == (200, {"led": 1})
    code, refused = api.do("PUT", f"{TOPICS}/t/status", {**raw, "status": {"led": 2}})
    assert (code, refused["reason"]) == (409, "Conflict")
    assert api.do("GET", f"{TOPICS}/t")[1] == first


def test_status_leaves_the_spec_alone_and_the_spec_the_status(api: Fixture) -> None:
    raw = api.create(TOPICS, "t", {"partitions": 1})
    _, shown = api.do("PUT", f"{TOPICS}/t/status", {**raw, "spec": {"partitions": 9}, "status": {"led": 1}})
    assert shown["spec"] == {"partitions": 1}
    assert shown["metadata"]["generation"] == 1
    _, changed = api.do("PUT", f"{TOPICS}/t", {**shown, "spec": {"partitions": 2}, "status": {}})
    assert (changed["spec"], changed["status"]) == ({"partitions": 2}, {"led": 1})
    assert changed["metadata"]["generation"] == 2


def test_write_that_changes_nothing_takes_no_version_and_tells_nobody(api: Fixture) -> None:
    raw = api.create(TOPICS, "t")
    _, first = api.do("PUT", f"{TOPICS}/t/status", {**raw, "status": {"led": 1}})
    events = len(api.told)
    assert api.do("PUT", f"{TOPICS}/t/status", {**first, "status": {"led": 1}})[1] == first
    assert len(api.told) == events


def test_object_of_the_same_name_with_another_uid_is_another_one(api: Fixture) -> None:
    raw = api.create(TOPICS, "t")
    uid = raw["metadata"]["uid"]
    assert api.do("DELETE", f"{TOPICS}/t", {"preconditions": {"uid": "other"}})[0] == 409
    assert api.do("DELETE", f"{TOPICS}/t", {"preconditions": {"uid": uid}})[0] == 200
    assert api.do("GET", f"{TOPICS}/t")[0] == 404
    again = api.create(TOPICS, "t")
    body = {"metadata": {"name": "t", "uid": uid}, "status": {"led": 1}}
    assert api.do("PATCH", f"{TOPICS}/t/status", body)[0] == 409
    assert again["metadata"]["uid"] != uid


def test_epoch_in_a_status_never_falls(api: Fixture) -> None:
    raw = api.create(PARTITIONS, "t-0", {"index": 0})
    _, shown = api.do("PUT", f"{PARTITIONS}/t-0/status", {**raw, "status": {"epoch": 4}})
    assert api.do("PUT", f"{PARTITIONS}/t-0/status", {**shown, "status": {"epoch": 3}})[0] == 422
    assert api.do("PUT", f"{PARTITIONS}/t-0/status", {**shown, "status": {}})[0] == 422


def test_apply_creates_and_then_changes(api: Fixture) -> None:
    path = "/apis/apps/v1/namespaces/ns/statefulsets/c"
    body = {"metadata": {"name": "c"}, "spec": {"replicas": 3}}
    assert api.do("PATCH", path, body)[0] == 201
    assert api.do("PATCH", path, body)[1]["metadata"]["generation"] == 1
    assert api.do("PATCH", path, {**body, "spec": {"replicas": 5}})[1]["metadata"]["generation"] == 2


def test_list_selects_by_label_and_carries_the_version_of_the_whole(api: Fixture) -> None:
    api.create("/api/v1/namespaces/ns/pods", "pod-0", labels={"muster.dev/cluster": "pod"})
    api.create("/api/v1/namespaces/ns/pods", "other")
    api.create(LEASES, "lease")
    _, listed = api.do("GET", "/api/v1/namespaces/ns/pods", labelSelector="muster.dev/cluster")
    assert [each["metadata"]["name"] for each in listed["items"]] == ["pod-0"]
    assert listed["metadata"]["resourceVersion"] == "3"


def test_changes_behind_a_version_are_told_until_they_are_compacted(api: Fixture) -> None:
    raw = api.create(TOPICS, "t")
    api.do("PUT", f"{TOPICS}/t/status", {**raw, "status": {"led": 1}})
    api.do("DELETE", f"{TOPICS}/t", {})
    found = api.objects.since(1)
    assert found is not None
    assert [(change.event, change.raw["metadata"]["resourceVersion"]) for change in found] == [
        ("MODIFIED", "2"),
        ("DELETED", "3"),
    ]
    api.objects.compact()
    assert api.objects.since(1) is None
    assert api.objects.since(3) is not None


@pytest.mark.parametrize("bump", [True, False])
def test_restored_backup_has_the_old_objects_and_no_history(api: Fixture, bump: bool) -> None:
    raw = api.create(TOPICS, "t")
    backup = api.objects.backup()
    api.do("PUT", f"{TOPICS}/t/status", {**raw, "status": {"led": 1}})
    api.create(TOPICS, "u")
    api.objects.restore(backup, bump=bump)
    assert api.objects.all("offsetstopics") == [raw]
    assert api.objects.since(3) is None
    assert api.objects.revision == (1_003 if bump else 1)


def test_lost_status_is_gone_for_watches_too(api: Fixture) -> None:
    raw = api.create(TOPICS, "t")
    api.do("PUT", f"{TOPICS}/t/status", {**raw, "status": {"led": 1}})
    api.objects.lose_status("offsetstopics", "ns", "t")
    assert "status" not in api.told[-1].raw
    assert api.told[-1].event == "MODIFIED"


# -- as processes reach it --------------------------------------------------------------------------------------------


class Caller:
    """Implements `process.Process`; `answers` in the order in which they came."""

    def __init__(self, server: ApiServer, name: str = "op") -> None:
        self.name = name
        self.is_alive = True
        self.answers: list[int | str] = []
        self._server = server

    def deliver(self, do: Callable[[], None]) -> None:
        if self.is_alive:
            do()

    def ask(self, method: str = "GET", path: str = TOPICS, body: Json | None = None) -> None:
        encoded = msgspec.json.encode(body) if body is not None else None
        self._server.request(self, method, path, {}, encoded, self._take)

    def _take(self, result: tuple[int, bytes] | Unanswered) -> None:
        self.answers.append(str(result) if isinstance(result, Unanswered) else result[0])


def server(**options: Any) -> ApiServer:
    return ApiServer(World(Options(1, **{"api_errors": 0.0, "long_delay": 0.0, **options})))


def test_requests_are_answered_and_fail_in_each_way() -> None:
    subject = server(api_errors=1.0)
    caller = Caller(subject)
    for index in range(60):
        caller.ask("POST", TOPICS, {"metadata": {"name": f"t{index}"}, "spec": {}})
    subject.world.run_until(100)
    told = set(caller.answers)
    in_time = len(subject.objects.all("offsetstopics"))
    subject.world.run_until(10_000)
    assert told == {429, 500, "connection reset"}
    assert len(caller.answers) < 60
    assert 0 < in_time < len(subject.objects.all("offsetstopics")) < 60
    subject.world.faults = False
    caller.ask("GET")
    subject.world.run_until(11_000)
    assert caller.answers[-1] == 200


def test_nobody_reaches_it_while_it_is_away() -> None:
    subject = server()
    caller = Caller(subject)
    subject.down_until = 500
    for _ in range(20):
        caller.ask()
    subject.world.run_until(400)
    assert set(caller.answers) == {"connection refused"}
    assert len(caller.answers) < 20
    assert subject.world.injected[Injected.OUTAGE] == 20


def test_dead_process_hears_nothing() -> None:
    subject = server()
    caller = Caller(subject)
    caller.ask("POST", TOPICS, {"metadata": {"name": "t"}, "spec": {}})
    caller.is_alive = False
    subject.world.run_until(1_000)
    assert caller.answers == []
    assert subject.objects.get("offsetstopics", "ns", "t") is not None


class Watcher:
    def __init__(self, subject: ApiServer, caller: Caller) -> None:
        self.seen: list[tuple[str, str]] = []
        self.ends: list[bool] = []
        self.stream = Stream(caller, "offsetstopics", "ns", "", self._take, self.ends.append)
        subject.watch(self.stream, 0)

    def _take(self, event: str, raw: Json) -> None:
        self.seen.append((event, raw["metadata"]["name"]))


def test_watch_shows_what_was_and_what_comes_in_order() -> None:
    subject = server(delay_ms_max=15)
    watcher = Watcher(subject, caller := Caller(subject))
    names = [f"t{index}" for index in range(30)]
    for name in names:
        subject.objects.handle("POST", TOPICS, {}, {"metadata": {"name": name}, "spec": {}})
        subject.world.run_until(subject.world.now_ms + 3)
    subject.objects.handle("POST", LEASES, {}, {"metadata": {"name": "other"}, "spec": {}})
    subject.world.run_until(subject.world.now_ms + 100)
    assert watcher.seen == [("ADDED", name) for name in names]
    assert caller.answers == []


def test_watch_that_lags_shows_the_past_and_one_that_ends_says_so() -> None:
    subject = server()
    watchers = [Watcher(subject, Caller(subject)) for _ in range(10)]
    subject.world.run_until(10)
    for _ in range(10):
        subject.lag("op")
    subject.objects.handle("POST", TOPICS, {}, {"metadata": {"name": "t"}, "spec": {}})
    subject.world.run_until(60)
    assert all(watcher.ends == [False] and watcher.seen == [] for watcher in watchers)
    late = Watcher(subject, Caller(subject))
    subject.world.run_until(10_000)
    assert (late.seen, late.ends) in (([("ADDED", "t")], []), ([], [True]))


def test_watch_from_a_version_that_is_gone_must_begin_anew() -> None:
    subject = server()
    subject.objects.handle("POST", TOPICS, {}, {"metadata": {"name": "t"}, "spec": {}})
    subject.objects.compact()
    watcher = Watcher(subject, Caller(subject))
    subject.world.run_until(100)
    assert watcher.ends == [True]
