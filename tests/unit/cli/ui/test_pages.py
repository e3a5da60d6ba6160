"""The pages of `muster ui`: each view of recorded clusters, texts of strangers, and what is said without answers."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from urllib.parse import quote

from tests.support.recorded_clusters import recorded
from tests.unit.cli.ui.site import HOSTILE, site, words

from muster_cli.ui.transactions import Described, judged
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import METRICS_PORT

AT = "/cluster/shop/orders"
PAGES = ("/", AT, *(f"{AT}/{name}" for name in ("groups", "explain?of=3", "transactions", "kafka", "doctor")))
METRICS = """
muster_transactional_ids{state="Ongoing"} 3
muster_transactional_ids{state="PrepareCommit"} 2
muster_transaction_markers_missing %d
muster_transaction_markers_refused_total %d
muster_transactions_timed_out_total 1
muster_mirror_lag 12
muster_mirror_problems 1
muster_mirror_records_taken_in_total 900
"""
GATEWAY_METRICS = """
muster_gateway_connections 7
muster_gateway_reachable{cluster="upstream"} 0
muster_gateway_reachable{cluster="muster"} 1
muster_gateway_group_requests_waiting 4
"""


def scraped(pod: str) -> str:
    return f"/api/v1/namespaces/shop/pods/{pod}:{METRICS_PORT}/proxy/metrics"


async def test_clusters_are_listed_with_verdict_and_the_first_thing_to_look_at() -> None:
    async with site(recorded("majority_lost")) as pages:
        told = await pages.words("/")
    assert "shop/orders needs a person 3 of 3 2 of 4" in told
    assert "CoordinatorCluster orders: UnderReplicated" in told


async def test_overview_has_the_verdict_what_is_under_way_and_each_partition_in_each_pod() -> None:
    objects = recorded("pod_lost")
    objects["pods"][0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    async with site(objects) as pages:
        html = await pages.text(AT)
    told = words(html)
    assert "2 of 3 pods ready, 4 of 4 partitions led, 4 replicas behind" in told
    assert "2 of 3 pods are ready; not ready: orders-0" in told
    assert 'aria-label="Pod orders-0, not ready: leads 0 of 4 partitions, has a copy of 4."' in html
    assert html.count('<g class="cell leader">') == 4, "each partition is led once"
    assert html.count('<g class="cell replica">') == 8
    assert "orders-1 leads 0 (orders-0) in epoch 1" in told


async def test_overview_shows_partitions_that_nobody_leads_and_opens_their_table() -> None:
    async with site(recorded("majority_lost")) as pages:
        html = await pages.text(AT)
    assert html.count('<g class="cell unled">') == 6
    assert '<details id="partition-details" open>' in html
    assert "NoMajority" in words(html)


async def test_overview_has_failovers_as_marks_of_a_time_line_and_as_rows() -> None:
    async with site(recorded("pod_lost")) as pages:
        html = await pages.text(AT)
    assert html.count('<g class="mark lost">') == 2
    assert re.search(r"orders-3</a></th>.*?orders-0</td><td[^>]*>orders-2</td><td[^>]*>28 ms", html)
    async with site(recorded("healthy")) as pages:
        assert "None since the cluster was made." in await pages.words(AT)


def in_zones(objects: Json) -> None:
    """Each pod on a node of its own, of which two are in a zone."""
    template = objects["pods"][0]["spec"]["nodeName"]
    assert template
    objects["nodes"] = []
    for number, pod in enumerate(objects["pods"]):
        pod["spec"]["nodeName"] = f"node-{number}"
        labels = {"topology.kubernetes.io/zone": f"zone-{number}"} if number < 2 else {}
        objects["nodes"].append({"metadata": {"name": f"node-{number}", "labels": labels}})


async def test_pods_stand_in_their_zones_where_nodes_may_be_read() -> None:
    objects = recorded("healthy")
    in_zones(objects)
    async with site(objects) as pages:
        html = await pages.text(AT)
    assert re.findall(r'class="zone" role="group" aria-label="([^"]*)"', html) == [
        *("Zone zone-0", "Zone zone-1", "Pods without a zone")
    ]
    async with site(objects, refused=("nodes",)) as pages:
        html = await pages.text(AT)
    assert re.findall(r'class="zone" role="group" aria-label="([^"]*)"', html) == ["Pods"]


async def test_groups_are_listed_with_members_and_lag_where_somebody_has_the_data() -> None:
    async with site(recorded("healthy")) as pages:
        told = await pages.words(f"{AT}/groups")
        assert "billing STABLE CLASSIC 1 -" in told
        assert "--lag-from" in told
    async with site(recorded("healthy"), lag_from="kafka:9092") as pages:
        assert "billing STABLE CLASSIC 1 8" in await pages.words(f"{AT}/groups")


async def test_groups_are_found_by_a_part_of_their_ids_and_come_in_pages() -> None:
    async with site(recorded("healthy")) as pages:
        pages.groups.names = [f"group-{number:03}" for number in range(60)]
        told = await pages.words(f"{AT}/groups?page=3")
        assert ("group-050" in told, "group-049" in told, "Page 3 of 3" in told) == (True, False, True)
        assert len(pages.groups.described_ones) == 10, "only those that are shown are asked about"
        assert "Page 3 of 3" in await pages.words(f"{AT}/groups?page=99")
        told = await pages.words(f"{AT}/groups?q=GROUP-01")
        assert "10 groups with GROUP-01 in the id" in told


async def test_brokers_that_do_not_answer_are_told_of_and_not_asked_for_each_group() -> None:
    async with site(recorded("healthy")) as pages:
        await pages.text(f"{AT}/groups")
        pages.groups.described_ones.clear()
        pages.groups.problem = "orders:9092 does not answer"
        told = await pages.words(f"{AT}/groups")
        assert ("No answer now: orders:9092 does not answer" in told, "billing" in told) == (True, True)
        assert pages.groups.described_ones == []


async def test_group_has_members_offsets_and_where_it_lives() -> None:
    async with site(recorded("healthy"), lag_from="kafka:9092") as pages:
        told = await pages.words(f"{AT}/group?id=billing")
        assert "STABLE CLASSIC, assignor range , 1 member, lag 8" in told
        assert "orders 0 42 50 8" in told
        assert "The group billing hashes to number 1 of 4." in told
        told = await pages.words(f"{AT}/group?id=gone")
        assert "there is no group gone" in told


async def test_explain_says_where_why_and_what_is_next_or_that_there_is_no_such_thing() -> None:
    async with site(recorded("majority_lost")) as pages:
        told = await pages.words(f"{AT}/explain?of=0")
        assert "orders-0 Leaderless" in told
        assert "An election needs 2 of its 3 replicas." in told
        told = await pages.words(f"{AT}/explain?of=pay-1&kind=transactional-id")
        assert "no cluster there has a partition for pay-1" in told
        assert "hashes to number" in await pages.words(f"{AT}/explain?of=3&kind=group")


def coordinate_transactions(objects: Json) -> None:
    topic = objects["offsetstopics"][0]
    meta = {**topic["metadata"], "name": "transactions"}
    objects["offsetstopics"].append(
        {**topic, "metadata": meta, "spec": {**topic["spec"], "topic": "__transaction_state"}}
    )


async def test_markers_that_are_missing_and_refused_are_told_by_pod() -> None:
    objects = recorded("healthy")
    async with site(objects) as pages:
        assert "This cluster coordinates no transactions" in await pages.words(f"{AT}/transactions")
    coordinate_transactions(objects)
    async with site(objects) as pages:
        pages.server.texts = {scraped(pod): METRICS % (0, 5) for pod in ("orders-0", "orders-1")}
        told = await pages.words(f"{AT}/transactions")
        assert "orders-0 nothing waits 3 2 0 5 1" in told
        assert "Markers are refused" not in told
        assert "Pods without metrics" in told
        assert "orders-2 :" in told
        pages.server.texts[scraped("orders-1")] = METRICS % (4, 5)
        told = await pages.words(f"{AT}/transactions")
        assert "Markers are refused: they are missing at orders-1" in told
        assert "orders-1 markers are refused 3 2 4 5 1" in told
        pages.server.texts[scraped("orders-1")] = METRICS % (4, 0)
        assert "orders-1 markers on their way" in await pages.words(f"{AT}/transactions")


def transaction(name: str, state: str, open_s: float, now: float) -> Described:
    """With a time-out of a minute."""
    return Described(name, state, 7, 1, 60_000, int((now - open_s) * 1000), ("orders-0",))


def test_transaction_hangs_when_its_time_is_over_and_nobody_ends_it() -> None:
    now = 1_800_000_000.0
    told = judged(
        [
            transaction("young", "Ongoing", 20, now),
            transaction("ended", "CompleteCommit", 900, now),
            transaction("being-ended", "Ongoing", 70, now),
            transaction("late", "Ongoing", 80, now),
            transaction("decided", "PrepareCommit", 900, now),
        ],
        3,
        now,
    )
    assert [(each.transactional_id, each.hangs) for each in told.shown] == [
        ("decided", "its end is decided, and markers are missing"),
        ("late", "its time is over"),
        ("being-ended", ""),
        ("young", ""),
    ]
    assert told.more == 3


async def test_open_transactions_are_named_and_those_that_hang_come_first() -> None:
    objects = recorded("healthy")
    coordinate_transactions(objects)
    async with site(objects) as pages:
        assert "None, so none hangs." in await pages.words(f"{AT}/transactions")
        pages.ledger.described = [transaction(HOSTILE, "Ongoing", 900, time.time())]
        told = await pages.words(f"{AT}/transactions")
        assert "1 of them hang." in told
        assert "alert(1)" in told
        assert "<script>" not in await pages.text(f"{AT}/transactions")
        pages.ledger.problem = "pods do not tell"
        told = await pages.words(f"{AT}/transactions")
        assert ("No answer now: pods do not tell" in told, "1 of them hang." in told) == (True, True)


def stand_in_front(objects: Json) -> None:
    """A mirror that is followed, and a gateway of one pod."""
    cluster = objects["coordinatorclusters"][0]
    cluster["spec"] |= {"upstream": {"bootstrapServers": "kafka:9092"}, "gateway": {}}
    cluster["status"]["gateway"] = "orders-gateway.shop.svc:9092"
    mirrored = {
        "type": "Mirrored",
        "status": "False",
        "reason": "UpstreamNotFollowed",
        "message": "pod orders-1: refused",
    }
    cluster["status"]["conditions"].append({**mirrored, "lastTransitionTime": "2026-11-27T22:50:05Z"})
    pod = {
        "metadata": {"name": "orders-gateway-x", "namespace": "shop", "labels": {"muster.dev/gateway": "orders"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    }
    objects["pods"].append(pod)


async def test_mirror_and_gateway_are_shown_with_what_their_pods_measure() -> None:
    objects = recorded("healthy")
    async with site(objects) as pages:
        told = await pages.words(f"{AT}/kafka")
        assert ("No Kafka cluster is mirrored." in told, "The cluster has no gateway." in told) == (True, True)
    stand_in_front(objects)
    async with site(objects) as pages:
        assert "its metrics, which are not reached from here" in await pages.words(f"{AT}/kafka")
        pages.server.texts = {scraped("orders-0"): METRICS % (0, 0), scraped("orders-gateway-x"): GATEWAY_METRICS}
        told = await pages.words(f"{AT}/kafka")
        assert "UpstreamNotFollowed : pod orders-1: refused" in told
        assert "orders-0 12 1 900 0 0" in told
        assert "orders-gateway-x not ready (Running) upstream 7 4 0 0" in told
        assert "orders-gateway.shop.svc:9092" in told


async def test_doctor_has_the_findings_with_their_fixes() -> None:
    async with site(recorded("healthy")) as pages:
        told = await pages.words(f"{AT}/doctor")
    assert "Something must be mended before production." in told
    assert "must network no NetworkPolicy selects the pods" in told


class _Tags(HTMLParser):
    """Names of elements and of attributes, and the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


async def test_names_that_clients_choose_are_texts_and_no_markup_wherever_they_stand() -> None:
    objects = recorded("pod_lost")
    objects["coordinatorclusters"][0]["status"]["lastFailovers"][0]["reason"] = HOSTILE
    objects["pods"][0]["spec"]["nodeName"] = HOSTILE
    async with site(objects) as pages:
        for path in (
            AT,
            f"{AT}/groups?q=script",
            f"{AT}/group?id={quote(HOSTILE)}",
            f"{AT}/explain?of={quote(HOSTILE)}",
        ):
            html = await pages.text(path)
            parsed = _Tags()
            parsed.feed(html)
            assert parsed.tags.count("script") == 1, "ours, by its address"
            assert not [name for name in parsed.attributes if name.startswith("on")], path
            assert "alert(1)" in words(html), path
        link = re.search(r'href="(/cluster/shop/orders/group\?id=[^"]*script[^"]*)"', await pages.text(f"{AT}/groups"))
        assert link is not None
        assert "there is no group" not in await pages.words(link[1]), "its link leads to it"


async def test_pages_have_landmarks_headings_captions_and_nothing_from_elsewhere() -> None:
    objects = recorded("pod_lost")
    coordinate_transactions(objects)
    async with site(objects) as pages:
        for path in PAGES:
            html = await pages.text(path)
            for element in ("<main", "<header>", "<footer>", "<title>", '<html lang="en">'):
                assert html.count(element) == (html.count("<title>") if element == "<title>" else 1), (path, element)
            assert html.count("<h1>") == 1
            assert html.count("<table") == html.count("<caption"), path
            assert "<th>" not in html, "headers of tables say of what"
            assert not re.search(r'(?:src|href)="(?:https?:)?//', html), path
            assert " style=" not in html, path
            ids = re.findall(r'\bid="([^"]*)"', html)
            assert len(ids) == len(set(ids)), path
            if path != "/":
                assert html.count('aria-current="page"') == 1, path


async def test_page_that_has_not_changed_is_not_sent_again() -> None:
    async with site(recorded("healthy")) as pages:
        for path in PAGES:
            first = await pages.get(path)
            tag = first.headers["ETag"]
            assert (await pages.get(path, If_None_Match=tag)).status == 304, path
        tag = (await pages.get(AT)).headers["ETag"]
        pages.objects["coordinatorclusters"][0]["spec"]["suspend"] = True
        assert (await pages.get(AT, If_None_Match=tag)).status == 200


async def test_cluster_that_is_not_there_is_404_and_nothing_reached_is_503() -> None:
    async with site(recorded("healthy")) as pages:
        answer = await pages.get("/cluster/shop/nope")
        assert (answer.status, "has no cluster shop/nope" in await answer.text()) == (404, True)
        assert (await pages.get("/static/../app.py")).status == 404
        assert (await pages.get("/static/base.html.j2")).status == 404
    async with site(recorded("healthy"), refused=("coordinatorclusters",)) as pages:
        answer = await pages.get(AT)
        assert (answer.status, "the API server: list" in words(await answer.text())) == (503, True)


async def test_last_state_is_shown_while_the_api_server_does_not_answer() -> None:
    async with site(recorded("healthy")) as pages:
        assert "No answer now" not in await pages.words(AT)
        pages.server.refused = ("coordinatorclusters",)
        told = await pages.words(AT)
        assert "No answer now: the API server: list" in told
        assert "4 of 4 partitions led" in told


async def test_it_reads_no_secret_and_writes_nothing() -> None:
    objects = recorded("healthy")
    stand_in_front(objects)
    async with site(objects) as pages:
        for path in PAGES:
            await pages.text(path)
        assert {verb for _, verb in pages.server.asked} == {"list", "get"}
        assert not [plural for plural, _ in pages.server.asked if "secret" in plural]
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await pages.client.request(method, AT, headers={"Host": "localhost"})).status == 405
