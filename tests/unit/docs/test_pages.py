"""Pages point at things that exist: links, folders of the contributors' table, options of the command."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "hack"))

import render_folders  # hack/ is no package
import render_rules
from tests.simulation.faults import FAULTS, RULE_FAULTS

from muster_cli.local.command import up

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_of_a_page_stand_after_an_empty_line_or_a_heading(page: Path) -> None:
    """Else the site (`make docs`) shows them as a part of the paragraph before."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    assert re.findall(r"^(?!#|[-*] |\d+\. |\s).+\n(?:[-*]|1\.) .*", text, re.M) == []


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [page.name[:4] for page in PAGES if page.parent.name == "adr"]
    assert sorted(set(numbers)) == numbers


PACKAGES = render_folders.PACKAGES


def test_table_of_folders_is_rendered_and_has_every_package_and_folder_of_tests() -> None:
    page = render_folders.PAGE.read_text()
    assert page == render_folders.page(), "run: python hack/render_folders.py --write"
    folders = set(re.findall(r"^\|(?:[^|]* \|)? `([\w/]+/)` \|", page, re.M))
    packages = {f"{package}/{inner.parent.name}/" for package in PACKAGES for inner in ROOT.glob(f"{package}/*/*.py")}
    tests = {f"tests/{folder.name}/" for folder in (ROOT / "tests").iterdir() if any(folder.glob("**/*.py"))}
    assert len(packages) > 25
    assert sorted((packages | tests) - folders) == []
    assert sorted(each for each in folders if not (ROOT / each).is_dir()) == []


def test_architecture_page_names_modules_and_methods_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    modules = set(re.findall(r"`([a-z0-9_/]+\.py)`", text))
    assert len(modules) > 30
    assert sorted(name for name in modules if not any((ROOT / package / name).is_file() for package in PACKAGES)) == []
    sources = "".join(file.read_text() for package in PACKAGES for file in (ROOT / package).glob("**/*.py"))
    methods = set(re.findall(r"`([A-Z]\w+)\.([a-z_]+)`", text)) - {("OffsetsTopic", "status")}
    assert methods
    for owner, method in methods:
        assert re.search(rf"\bclass {owner}\b", sources), owner
        assert re.search(rf"\bdef {method}\b", sources), method


def test_operations_page_lists_the_options_of_local_up() -> None:
    usage = (ROOT / "docs" / "operations.md").read_text().split("``")[1]
    shown = set(re.findall(r"--[a-z-]+", usage))
    options = {name for each in up.params if isinstance(each, click.Option) for name in each.opts}
    assert shown == options | {"--json"}


def test_rules_of_replication_name_code_and_tests_that_exist_and_every_planted_fault() -> None:
    rules = render_rules.rules()
    assert len(rules) > 40
    packages = (ROOT / "coordinator/muster_coordinator", ROOT / "operator/muster_operator")
    named = set()
    for rule in rules:
        assert rule["code"]
        for file, name in (place.split("::") for place in rule["code"]):
            assert any(_defines(package / file, name) for package in packages), (file, name)
        assert rule.get("tests") or rule.get("faults"), rule["rule"]
        for file, name in (place.split("::") for place in rule.get("tests", [])):
            assert _defines(ROOT / "tests/unit" / file, name), (file, name)
        named.update(rule.get("faults", []))
    assert named <= set(FAULTS)
    assert named >= set(RULE_FAULTS)


def test_page_of_the_rules_of_replication_is_rendered_from_them() -> None:
    assert render_rules.PAGE.read_text() == render_rules.page(), "run: python hack/render_rules.py --write"


def _defines(file: Path, name: str) -> bool:
    return file.exists() and re.search(rf"\b(def|class) {name}\b", file.read_text()) is not None
