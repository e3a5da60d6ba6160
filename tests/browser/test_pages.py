"""What somebody does with the pages of `muster ui`, in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.browser.conftest import HOSTILE, PASSWORD, USER, Browser, Local, Recorded, start_ui

PAGES = ("", "/groups", "/group?id=billing", "/explain?of=0", "/transactions", "/kafka", "/doctor")
SHOTS = Path(os.environ["MUSTER_SHOTS"]) if "MUSTER_SHOTS" in os.environ else None
"""Where pictures of all pages are put, to be looked at."""


@contextmanager
def members(bootstrap: str, group: str, number: int) -> Iterator[None]:
    """A group with so many members, which commit."""
    command = [sys.executable, "-m", "tests.browser.groups", bootstrap, group, str(number)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.kill()
        child.wait()


@pytest.fixture(scope="module", autouse=True)
def groups(local: Local) -> Iterator[None]:
    with members(local.bootstrap, "billing", 2), members(local.bootstrap, HOSTILE, 1):
        yield


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim()"))


def until(page: Any, expression: str) -> None:
    """Wait until it is true in the page, whose policy forbids what `wait_for_function` does: to make code of texts."""
    deadline = time.monotonic() + 20
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never: {expression}"
        page.wait_for_timeout(50)


def press_until(page: Any, key: str, text: str) -> None:
    """Press a key until what has the focus has this text."""
    for _ in range(40):
        page.keyboard.press(key)
        if focused(page) == text:
            return
    raise AssertionError(f"{key} does not lead to {text!r}")


def test_clusters_lead_to_groups_by_keyboard_alone(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(local.server.address)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to content"
    assert page.locator(".skip").bounding_box()["x"] >= 0, "it is seen while it has the focus"
    page.keyboard.press("Enter")
    press_until(page, "Tab", "local/muster")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cluster/local/muster")
    press_until(page, "Tab", "Groups")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector("#groups")
    assert page.locator("nav [aria-current=page]").inner_text() == "Groups"


def test_each_partition_is_led_once_and_stands_at_one_place_in_all_pods(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(local.overview)
    page.wait_for_selector(".badge:text-is('healthy')")
    assert page.locator(".pod").count() == 3
    assert page.locator(".cell.leader").count() == 15
    labels = [pod.locator("text").all_text_contents() for pod in page.locator(".pod").all()]
    assert labels[0] == labels[1] == labels[2] == [*map(str, range(12)), "t0", "t1", "t2"]


def test_pods_stand_in_zones_and_partitions_without_a_leader_are_seen(
    browser: Browser, recorded_cluster: Recorded
) -> None:
    page = browser.page()
    page.goto(recorded_cluster.overview)
    assert page.locator(".zone h3").all_inner_texts() == ["Zone zone-a", "Zone zone-b", "Without a zone"]
    assert page.locator(".cell.unled").count() == 6
    page.get_by_role("table", name=re.compile("Partitions by number")).get_by_text("NoMajority").first.wait_for()


def test_group_is_searched_and_has_its_members_and_offsets(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(f"{local.overview}/groups")
    page.get_by_label("Part of the id").fill("BILL")
    page.keyboard.press("Enter")
    page.get_by_role("rowheader", name="billing").wait_for()
    page.get_by_text("1 group with").wait_for()
    page.get_by_role("link", name="billing").click()
    page.get_by_role("table", name=re.compile("Members")).get_by_text("client-1", exact=True).wait_for()
    page.get_by_role("table", name=re.compile("Committed offsets")).get_by_text("42").first.wait_for()
    page.get_by_text("hashes to number").wait_for()


def test_name_of_a_hostile_group_is_a_text_and_its_link_leads_to_it(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(f"{local.overview}/groups")
    page.get_by_role("link", name=HOSTILE).click()
    assert page.locator("h1").inner_text() == f"Group {HOSTILE}"
    page.get_by_role("table", name=re.compile("Members")).get_by_text("client-0", exact=True).wait_for()
    assert page.locator("img").count() == 0


def test_group_that_comes_is_shown_without_reloading(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(f"{local.overview}/groups")
    page.evaluate("window.mark = 1")
    page.get_by_label("Part of the id").focus()
    with members(local.bootstrap, "latecomers", 1):
        page.get_by_role("rowheader", name="latecomers").wait_for()
    assert page.evaluate("window.mark") == 1
    assert page.evaluate("document.activeElement.id") == "q"


def test_group_is_explained_by_the_form(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(f"{local.overview}/explain")
    page.get_by_role("textbox", name="Partition or group").fill("3")
    page.get_by_label("as", exact=True).select_option("a group")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("The group 3 hashes to number").wait_for()
    assert page.get_by_label("as", exact=True).input_value() == "group", "the form says what was asked"
    page.get_by_role("textbox", name="Partition or group").fill("t1")
    page.get_by_label("as", exact=True).select_option("whatever has that name")
    page.get_by_role("textbox", name="Partition or group").press("Enter")
    page.get_by_text("__transaction_state-1").wait_for()


def test_partition_of_the_table_leads_to_why_it_has_no_leader(browser: Browser, recorded_cluster: Recorded) -> None:
    page = browser.page()
    page.goto(recorded_cluster.overview)
    page.locator("#partition-table").get_by_role("link", name="orders-0").click()
    page.get_by_text("An election needs 2 of its 3 replicas.").wait_for()
    assert page.locator("article .badge").inner_text() == "Leaderless"


def test_failover_is_seen_live_and_disturbs_nobody(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(local.overview)
    page.wait_for_selector(".badge:text-is('healthy')")
    marks = page.locator(".mark.lost").count()
    page.evaluate("window.mark = 1")
    if page.locator("#partition-details").get_attribute("open") is None:
        page.locator("summary").click()
    row = page.locator("#partition-table a").nth(3)
    row.focus()
    led = page.locator(".pod", has_text="muster-0").locator(".cell.leader")
    assert led.count() > 0
    record = json.loads((local.cluster.data / "run.json").read_text())
    os.kill(record["pods"][0]["process"]["pid"], signal.SIGKILL)
    until(page, "document.querySelectorAll('.mark.lost').length > 0")
    until(page, "!document.querySelectorAll('.pod')[0].querySelector('.cell.leader')")
    assert marks == 0
    assert page.locator("#failover-table tbody tr").count() > 0
    assert focused(page).startswith("3"), "the focus is where it was"
    assert page.locator("#partition-details").get_attribute("open") is not None
    assert page.evaluate("window.mark") == 1
    assert page.get_by_role("status").inner_text() != "", "a screen reader is told"
    if SHOTS:
        page.screenshot(path=SHOTS / "failover.png")
    page.wait_for_selector(".badge:text-is('healthy')", timeout=60_000)


@pytest.mark.parametrize("width", [320, 360])
def test_narrow_screen_scrolls_no_page_sideways(browser: Browser, local: Local, width: int) -> None:
    page = browser.page(viewport={"width": width, "height": 700})
    for path in PAGES:
        page.goto(local.overview + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_wide_table_is_scrolled_by_keyboard_and_stays_there_when_it_changes(browser: Browser, local: Local) -> None:
    page = browser.page(viewport={"width": 320, "height": 700})
    page.goto(f"{local.overview}/group?id=billing")
    page.get_by_role("region", name="Members by client id").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    until(page, "document.activeElement.scrollLeft > 40")


def test_dark_follows_the_system(browser: Browser, local: Local) -> None:
    page = browser.page(color_scheme="dark")
    page.goto(local.overview)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert (dark, page.evaluate("getComputedStyle(document.body).backgroundColor")) == (
        *("rgb(17, 22, 28)", "rgb(255, 255, 255)"),
    )


def test_transactions_are_told_by_pod(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(local.overview)
    page.get_by_role("link", name="Transactions", exact=True).click()
    table = page.get_by_role("table", name=re.compile("Transactions by the pod"))
    table.get_by_role("rowheader", name="muster-2").wait_for()
    page.get_by_text("None, so none hangs.").wait_for()


def test_transaction_that_stays_open_is_named(browser: Browser, local: Local) -> None:
    producer = Producer({"bootstrap.servers": local.bootstrap, "transactional.id": "pay-1"})
    producer.init_transactions(20)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": local.bootstrap, "group.id": "payments"})
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 5)], consumer.consumer_group_metadata(), 20)
    page = browser.page()
    page.goto(f"{local.overview}/transactions")
    row = page.locator("#open").get_by_role("row", name=re.compile("pay-1"))
    row.get_by_text("Ongoing").wait_for()
    producer.abort_transaction(20)
    consumer.close()
    row.wait_for(state="detached")


def test_mirror_and_gateway_say_that_there_are_none(browser: Browser, local: Local) -> None:
    page = browser.page()
    page.goto(local.overview)
    page.get_by_role("link", name="Mirror and gateway").click()
    page.get_by_text("No Kafka cluster is mirrored.").wait_for()
    page.get_by_text("The cluster has no gateway.").wait_for()


def test_doctor_tells_what_to_do_on_kubernetes_and_that_it_looks_nowhere_else(
    browser: Browser, local: Local, recorded_cluster: Recorded
) -> None:
    page = browser.page()
    page.goto(f"{recorded_cluster.overview}/doctor")
    page.get_by_role("rowheader", name="network").wait_for()
    assert "kubectl" in page.locator("#findings").inner_text()
    page.goto(f"{local.overview}/doctor")
    page.get_by_text("looks at clusters on Kubernetes only").wait_for()


def test_without_a_login_nothing_is_shown_and_with_one_the_page_is_live(
    browser: Browser, recorded_cluster: Recorded
) -> None:
    page = browser.page(login=False)
    for path in ("", "/doctor"):
        answer = page.request.get(recorded_cluster.overview + path)
        assert (answer.status, "orders" in answer.text()) == (401, False)
    page = browser.page(login=False, http_credentials={"username": USER, "password": PASSWORD})
    page.goto(recorded_cluster.overview)
    with page.expect_response(lambda answer: answer.status == 304):
        page.get_by_text("Live: changes are shown").wait_for()
    assert PASSWORD not in page.content()
    browser.complaints.clear()  # the first request is one without a login


def test_change_on_kubernetes_is_said_to_screen_readers(browser: Browser, recorded_cluster: Recorded) -> None:
    page = browser.page()
    page.goto(recorded_cluster.overview)
    (raw,) = recorded_cluster.kubernetes.objects.all("offsetspartitions")[:1]
    path = f"/apis/muster.dev/v1alpha1/namespaces/shop/offsetspartitions/{raw['metadata']['name']}/status"
    led = {**raw["status"], "state": "Led", "leader": "orders-2"}
    recorded_cluster.change(path, {"metadata": {}, "status": led})
    try:
        page.locator(".cell.unled").nth(3).wait_for(state="detached")
        until(page, "document.getElementById('said').textContent.includes('3 of 4 partitions led')")
    finally:
        recorded_cluster.change(path, {"metadata": {}, "status": raw["status"]})


def test_page_says_when_its_server_is_gone_and_goes_on_when_it_is_back(browser: Browser, local: Local) -> None:
    server = start_ui("--data-dir", str(local.cluster.data))
    page = browser.page()
    page.goto(f"{server.address}cluster/local/muster")
    assert server.end() == 0
    page.get_by_text("Not live: the server of this page does not answer").first.wait_for()
    assert page.locator(".pod").count() == 3, "what was there stays"
    again = start_ui("--data-dir", str(local.cluster.data), port=int(server.address.rstrip("/").rpartition(":")[2]))
    try:
        page.get_by_text("Live: changes are shown").wait_for()
    finally:
        again.end()
        page.close()
    assert all("Failed to load resource" in each for each in browser.complaints)
    browser.complaints.clear()


def test_pages_are_complete_without_scripts(browser: Browser, local: Local) -> None:
    page = browser.page(java_script_enabled=False)
    page.goto(local.overview)
    assert page.locator(".cell.leader").count() == 15
    assert page.get_by_text("Reload to see what has changed.").count() == 1
    page.locator("summary").click()
    page.locator("#partition-table a").first.click()
    assert page.locator("h1").inner_text() == "Explain offsets-0"


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, local: Local, recorded_cluster: Recorded, scheme: str, width: int) -> None:
    page = browser.page(bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 900})
    paths = [local.server.address, *(f"{each.overview}{path}" for each in (local, recorded_cluster) for path in PAGES)]
    paths = [each for each in paths if not (each.startswith(recorded_cluster.overview) and "/group" in each)]
    axe, found = (files("axe_playwright_python") / "axe.min.js").read_text(), []
    for number, path in enumerate(paths):
        page.goto(path)
        page.get_by_text("Live: changes are shown").wait_for()
        if SHOTS:
            page.screenshot(path=SHOTS / f"{scheme}-{width}-{number:02}.png", full_page=True)
        page.evaluate(axe)
        told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [
            f"{path} {each['id']}: {node['html'][:100]}" for each in told["violations"] for node in each["nodes"][:2]
        ]
    assert found == []
