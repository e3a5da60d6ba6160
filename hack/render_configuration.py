"""Renders docs/configuration.md from the settings dataclasses: names, defaults, ranges, and the text under each field.

python hack/render_configuration.py            print the page
python hack/render_configuration.py --write    write docs/configuration.md
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from muster_coordinator.setting_fields import INT32_MAX
from muster_coordinator.settings import CoordinatorSettings
from muster_coordinator.settings_by_name import Setting, all_settings, sections

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """# Settings of a coordinator pod

Rendered from the code by `hack/render_configuration.py`; a test holds this page true. Settings go into
`CoordinatorCluster.spec.settings` on Kubernetes, and are given as `--config NAME=VALUE` to `muster local up` and
`muster-coordinator`. Names are Kafka's; a setting that Kafka does not have starts with `muster.`.

A pod reads its settings when it starts: a change of `spec.settings` replaces the pods one at a time, leaders first
moved. These fields of a CoordinatorCluster change while all pods run on: `topics`, `anyTopic`, `failover` but for
`nominateAfter`, `maintenance`, `rebalance`, `rollout`, `storage`, `deletionPolicy`, `deletionProtection`, `suspend`.
Files of users, ACLs and certificates are read again when they change.
"""


def field_texts(settings: type) -> dict[str, str]:
    """Attribute name -> the string literal under it, on one line."""
    (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(settings))).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            texts[statement.target.id] = " ".join(str(following.value.value).split())
    return texts


def range_of(setting: Setting) -> str:
    """The values that the setting takes."""
    if isinstance(setting.default, bool):
        return "true, false"
    if isinstance(setting.default, str):
        return "text"
    upper = "" if setting.maximum == INT32_MAX else str(setting.maximum)
    return f"{setting.minimum}..{upper}"


def default_of(setting: Setting) -> str:
    return str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)


def render() -> str:
    page = [HEAD]
    defaults = CoordinatorSettings()
    for section in sections():
        group = type(getattr(defaults, section.name))
        texts = field_texts(group)
        page.append(f"## {section.name.capitalize()}\n\n{' '.join((group.__doc__ or '').split())}\n")
        page.append("| name | default | range | meaning |\n|---|---|---|---|")
        for setting in all_settings():
            if setting.section == section.name:
                text = texts[setting.attribute].replace("|", "\\|")
                page.append(f"| `{setting.name}` | {default_of(setting)} | {range_of(setting)} | {text} |")
        page.append("")
    return "\n".join(page)


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(render(), PAGE, __doc__)
