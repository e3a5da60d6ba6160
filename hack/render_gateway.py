"""Renders docs/gateway.md from the gateway's settings and its table of APIs.

python hack/render_gateway.py            print the page
python hack/render_gateway.py --write    write docs/gateway.md
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from muster_gateway import apis, settings

PAGE = Path(__file__).parent.parent / "docs" / "gateway.md"

HEAD = """# Settings of the gateway, and the APIs that pass

Rendered from the code by `hack/render_gateway.py`; a test holds this page true. Settings are given as
`--config NAME=VALUE` to `muster-gateway`, or as lines of the environment variable `MUSTER_GATEWAY_CONFIG`.
[adopt.md](adopt.md) says what the gateway is for.

| name | default | range | meaning |
|---|---|---|---|
"""

APIS = """
## APIs

A node announces the lower of what its broker has and of this table; for the APIs of groups also of what Muster has. A
request of another API or version closes its connection.

| key | API | up to version | what is done |
|---:|---|---:|---|
"""

DONE = {
    apis.Treatment.THROUGH: "passes",
    apis.Treatment.PRODUCE: "passes; leader hints rewritten",
    apis.Treatment.FETCH: "passes; leader hints rewritten",
    apis.Treatment.BROKERS: "nodes rewritten",
    apis.Treatment.API_VERSIONS: "answered as above",
    apis.Treatment.FIND_COORDINATOR: "by the group's id; nodes rewritten",
    apis.Treatment.GROUP: "by the group's id",
    apis.Treatment.CONFIGS: "of groups by their ids; all others pass",
    apis.Treatment.LIST_CONFIGS: "groups: Kafka's without those of Muster, and Muster's; all others pass",
    apis.Treatment.SASL: "passes, or is answered by the gateway where it asks clients",
    apis.Treatment.LIST_GROUPS: "Kafka's without those of Muster; Muster's at its nodes",
}


def field_texts() -> dict[str, str]:
    """Attribute name -> the string literal under it, on one line."""
    (definition,) = ast.parse(inspect.getsource(settings.GatewaySettings)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        statement.target.id: " ".join(str(following.value.value).split())
        for statement, following in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }


def render() -> str:
    page, texts = [HEAD], field_texts()
    for setting in settings.SETTINGS:
        number = isinstance(setting.default, int)
        upper = "" if setting.maximum == settings.INT32_MAX else setting.maximum
        values = f"{setting.minimum}..{upper}" if number else "text"
        page.append(f"| `{setting.name}` | {setting.default} | {values} | {texts[setting.attribute]} |\n")
    page.append(APIS)
    for rule in apis.RULES.values():
        page.append(f"| {rule.key} | {rule.name} | {rule.max_version} | {DONE[rule.treatment]} |\n")
    return "".join(page)


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(render(), PAGE, __doc__)
