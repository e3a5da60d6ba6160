"""Renders docs/operator-tests.md: what the operator keeps, in the sentences that its tests are called.

python hack/render_operator.py            print the page
python hack/render_operator.py --write    write docs/operator-tests.md
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "operator-tests.md"
PARTS = {
    "The volumes are the truth": ("unit/operator/adopt", "unit/operator/cluster_id", "unit/operator/restored"),
    "More and fewer pods": ("unit/operator/scale", "unit/operator/spread", "unit/operator/hibernate"),
    "Ready, and how pods are replaced": (
        *("unit/operator/conditions", "unit/operator/maintenance", "unit/operator/window", "unit/operator/turns"),
        *("kube/missing_secrets", "integration/version_skew", "kubernetes/rollouts"),
    ),
    "Nodes, zones, storage": (
        *("kubernetes/nodes", "kube/claims", "unit/operator/stranded", "kube/stranded", "kubernetes/storage"),
    ),
    "Clients": (
        *("kube/external", "kubernetes/external_access", "kube/client_security"),
        *("unit/operator/users", "kube/users", "integration/given_access", "kubernetes/users"),
    ),
    "In front of a Kafka cluster": (
        *("kube/gateways", "kubernetes/gateway", "unit/operator/groups", "unit/operator/resets"),
        "kubernetes/moving_groups_on_kubernetes",
    ),
    "What it leaves alone, and what it makes again": (
        *("kube/ownership", "kube/workload_objects", "kubernetes/drift", "kubernetes/quiet", "pod/removing"),
    ),
    "More than one operator": ("integration/operator_process", "kube/leading", "kubernetes/two_operators"),
    "Life of the objects": (
        "kubernetes/life_cycle",
        "kubernetes/deletion",
        "kubernetes/helm",
        "kubernetes/olm",
        "kubernetes/crds_schema",
    ),
    "What was found by chance": ("unit/operator/found_by_storm",),
}
"""The tests of each part of docs/operator.md. `kube/x` is tests/unit/kube/test_x.py."""

HEAD = """# What the operator's tests hold

Rendered from the names of tests by `hack/render_operator.py`. [The operator](operator.md) explains them.
"""


def file_of(name: str) -> Path:
    folder, _, stem = name.rpartition("/")
    found = [ROOT / "tests" / each / f"test_{stem}.py" for each in (folder, f"unit/{folder}")]
    return next(file for file in found if file.exists())


def sentences(source: str) -> Iterator[str]:
    """The names of the tests of a file as sentences, in their order."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            words = node.name.removeprefix("test_").replace("_", " ")
            yield f"{words[0].upper()}{words[1:]}."


def page() -> str:
    text = HEAD
    for title, names in PARTS.items():
        text += f"\n## {title}\n"
        for name in names:
            file = file_of(name)
            text += f"\n`{file.relative_to(ROOT)}`\n\n"
            text += "".join(f"- {each}\n" for each in sentences(file.read_text(encoding="utf-8")))
    return text


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(page(), PAGE, __doc__)
