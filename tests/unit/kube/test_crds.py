"""The checked-in definitions are those of the models, and every form of field has a schema."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import yaml
from msgspec import Meta
from tests.kubernetes.test_crds_schema import BY_STATUS, CHANGED, REFUSED

from muster_operator.api.crds import definitions, main, render
from muster_operator.api.schema import struct_schema

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(("plural", "definition"), list(definitions()), ids=[name for name, _ in definitions()])
def test_checked_in_definition_is_the_generated_one(plural: str, definition: dict[str, Any]) -> None:
    for folder in ("crds", "charts/muster-crds/templates"):
        file = REPOSITORY / folder / f"{plural}.yaml"
        assert not file.is_symlink(), "some tools that fetch charts leave links out"
        assert file.read_text(encoding="utf-8") == render(definition), "run: python -m muster_operator.api.crds"
    assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_crds_folder_holds_what_main_writes_and_its_kustomization(tmp_path: Path) -> None:
    main(str(tmp_path))
    written = {file.name for file in tmp_path.iterdir()}
    assert {file.name for file in (REPOSITORY / "crds").iterdir()} == written | {"Kustomization"}
    listed = yaml.safe_load((REPOSITORY / "crds/Kustomization").read_text(encoding="utf-8"))["resources"]
    assert set(listed) == written


def rules_of(node: Any) -> Iterator[str]:
    """Messages of all CEL rules in a schema."""
    if isinstance(node, dict):
        yield from (rule["message"] for rule in node.get("x-kubernetes-validations", ()))
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from rules_of(each)


@pytest.mark.parametrize(("plural", "definition"), list(definitions()), ids=[name for name, _ in definitions()])
def test_every_rule_refuses_something_in_the_tests_on_kubernetes(plural: str, definition: dict[str, Any]) -> None:
    """Each case names one rule: two rules with the same words would be one to a person, too."""
    kind = definition["spec"]["names"]["kind"]
    said = [row[-1] for row in (*REFUSED, *CHANGED, *BY_STATUS) if row[0] == kind]
    rules = [*dict.fromkeys(rules_of(definition))]  # a store has the same rules wherever one is declared
    assert [rule for rule in rules if not any(each in rule for each in said)] == [], "no case in test_crds_schema.py"
    assert [each for each in said if sum(each in rule for rule in rules) > 1] == []


def test_status_has_no_defaults_but_the_condition_that_says_not_seen() -> None:
    for _, definition in definitions():
        status = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        assert [name for name, schema in status["properties"].items() if "default" in schema] == []
        assert status["default"]["conditions"][0]["status"] == "Unknown"


class Inner(msgspec.Struct, frozen=True):
    """Inner."""

    size: Annotated[str, Meta(pattern="^a$", description="A size.")] = "a"
    name: str | None = None


class Outer(msgspec.Struct, rename="camel"):
    """Outer."""

    first_number: Annotated[int, Meta(ge=1, lt=10)]
    inner: Annotated[Inner, Meta(description="Field wins over docstring.")] = Inner()
    names: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    flag: bool = False


def test_schema_has_bounds_defaults_and_required_fields() -> None:
    assert struct_schema(Outer, defaults=True) == {
        "type": "object",
        "description": "Outer.",
        "required": ["firstNumber"],
        "properties": {
            "firstNumber": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 9},
            "inner": {
                "type": "object",
                "description": "Field wins over docstring.",
                "properties": {
                    "size": {"type": "string", "pattern": "^a$", "description": "A size.", "default": "a"},
                    "name": {"type": "string"},
                },
                "default": {"size": "a"},
            },
            "names": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "flag": {"type": "boolean", "default": False},
        },
    }


def test_field_without_a_schema_is_an_error() -> None:
    class Unknown(msgspec.Struct):
        """Unknown."""

        moment: datetime

    with pytest.raises(TypeError, match="no schema"):
        struct_schema(Unknown, defaults=True)


def undescribed(schema: dict[str, Any], path: str) -> list[str]:
    found = [] if schema.get("description") or path.endswith(("[]", ".metadata")) else [path]
    for name, each in schema.get("properties", {}).items():
        found += undescribed(each, f"{path}.{name}")
    return found + (undescribed(schema["items"], f"{path}[]") if "items" in schema else [])


@pytest.mark.parametrize(("plural", "definition"), list(definitions()), ids=[name for name, _ in definitions()])
def test_every_field_has_a_text_for_kubectl_explain(plural: str, definition: dict[str, Any]) -> None:
    assert undescribed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], plural) == []
