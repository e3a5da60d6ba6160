"""What may be compiled (ADR 13): mypyc drops options of msgspec.Structs, and defaults of exceptions, without a word."""

from __future__ import annotations

import ast
import importlib
import os
import tomllib
from pathlib import Path

import pytest
from hack.compiled_modules import compiled_modules

REPOSITORY = Path(__file__).resolve().parents[3]
HOOK = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
PACKAGE = REPOSITORY / HOOK["custom"]["package"]
MODULES = compiled_modules(PACKAGE, HOOK["custom"]["modules"])


def classes_of(module: str) -> list[ast.ClassDef]:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def bases_of(node: ast.ClassDef) -> str:
    return " ".join(ast.unparse(base) for base in node.bases)


def test_all_but_what_is_left_out_is_compiled(tmp_path: Path) -> None:
    for name in ("__init__", "hot", "cold", "struct"):
        (tmp_path / f"{name}.py").touch()
    assert compiled_modules(tmp_path, {".": ["*", "!struct"]}) == ["./cold", "./hot"]
    assert compiled_modules(tmp_path, {".": ["hot"]}) == ["./hot"]
    for names in (["hto"], ["*", "!stuct"]):
        with pytest.raises(ValueError, match=f"no module {names[-1].removeprefix('!')}"):
            compiled_modules(tmp_path, {".": names})


@pytest.mark.parametrize("module", MODULES)
def test_compiled_module_defines_no_struct(module: str) -> None:
    assert [node.name for node in classes_of(module) if "Struct" in bases_of(node)] == []


@pytest.mark.parametrize("module", MODULES)
def test_exception_of_a_compiled_module_sets_its_attributes_itself(module: str) -> None:
    with_defaults = [
        node.name
        for node in classes_of(module)
        if "Error" in node.name and any(isinstance(each, ast.Assign | ast.AnnAssign) for each in node.body)
    ]
    assert with_defaults == []


def test_subclass_of_a_compiled_class_is_compiled() -> None:
    compiled = {node.name for module in MODULES for node in classes_of(module)}
    plain = {str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.py")} - set(MODULES)
    wrong = [
        f"{module}: {node.name}"
        for module in sorted(plain)
        for node in classes_of(module)
        if compiled & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    ]
    assert wrong == [], "Python refuses these when they are first made"


@pytest.mark.skipif("MUSTER_TEST_COMPILED" not in os.environ, reason="for the tests that run compiled")
@pytest.mark.parametrize("module", MODULES)
def test_what_is_tested_is_compiled(module: str) -> None:
    file = importlib.import_module(f"{PACKAGE.name}.{module.replace('/', '.')}").__file__
    assert file is not None
    assert file.endswith(".so")
    assert file.startswith(os.environ["MUSTER_TEST_COMPILED"])
