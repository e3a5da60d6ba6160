"""Renders docs/resources.md: the fields of all custom resources, from their definitions in crds/.

python hack/render_resources.py            print the page
python hack/render_resources.py --write    write docs/resources.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "resources.md"
HEAD = """# Fields of the resources

Rendered from `crds/` by `hack/render_resources.py`; a test holds this page true. `kubectl explain` says the same of the
definitions that a cluster has. Rules between fields are in the definitions, whose refusals say what is wrong.
"""
OF_EVERY_KIND = ("conditions", "observedGeneration")
"""Fields of each status that are the same in all kinds: docs/reasons.md has the conditions."""


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, schema) of the fields below a schema, in its order. Elements of an array have [] in their path."""
    for name, each in schema.get("properties", {}).items():
        if path == "status" and name in OF_EVERY_KIND:
            continue
        yield f"{path}.{name}", each
        yield from fields(each, f"{path}.{name}")
        yield from fields(each.get("items", {}), f"{path}.{name}[]")


def _row(path: str, schema: dict[str, Any]) -> str:
    default = schema.get("default")
    shown = "" if default is None or isinstance(default, dict | list) else f"`{json.dumps(default).strip(chr(34))}`"
    words = " ".join(schema.get("description", "").split()).replace("|", "\\|")
    choices = ", ".join(f"`{each}`" for each in schema.get("enum", ()) if each)
    return f"| `{path}` | {shown} | {words}{f' One of {choices}.' if choices else ''} |\n"


def page() -> str:
    text = HEAD
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))
        if definition["kind"] != "CustomResourceDefinition":
            continue
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        text += f"\n## {definition['spec']['names']['kind']}\n\n"
        text += f"{' '.join(schema['properties']['spec']['description'].split())}\n"
        for part in ("spec", "status"):
            rows = "".join(_row(*each) for each in fields(schema["properties"][part], part))
            text += f"\n| field | default | meaning |\n|---|---|---|\n{rows}" if rows else ""
    return text


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(page(), PAGE, __doc__)
