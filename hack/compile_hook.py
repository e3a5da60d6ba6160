"""Build hook of hatchling: compiles the coordinator's hot modules with mypyc into the wheel (ADR 13).

Off by default, so that `pip install` needs no compiler; `HATCH_BUILD_HOOKS_ENABLE=1 uv build --wheel` turns it on. What
is compiled is said in pyproject.toml. Nothing is written beside the sources: a module that was compiled once would be
imported ever after, whatever its source says by then.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
from compiled_modules import compiled_modules

SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

setup(name="muster-compiled", ext_modules=mypycify({arguments!r}, opt_level="2", debug_level="0", multi_file=True))
"""


class CompileHook(BuildHookInterface):  # type: ignore[misc]  # hatchling is there when a wheel is built
    """Options: `package`, the folder of the package; `modules`, lists by folder within it (`compiled_modules`)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root, self.config["package"])
        modules = compiled_modules(package, self.config["modules"])
        with tempfile.TemporaryDirectory(prefix="muster-compile-") as name:
            work = Path(name).resolve()
            shutil.copytree(package, work / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            paths = [f"{package.name}/{module}.py" for module in modules]
            options = ["--strict", "--explicit-package-bases", "--namespace-packages"]
            # What has no types is imported by modules that are not compiled; `make lint` has the list of it.
            arguments = [*options, "--disable-error-code=import-untyped", *paths]
            (work / "setup.py").write_text(SETUP.format(arguments=arguments))
            done = subprocess.run(
                [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "out", "--build-temp", "tmp"],
                cwd=work,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"mypyc could not compile the coordinator:\n{done.stdout[-8000:]}")
            self._keep(work / "out", build_data)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _keep(self, built: Path, build_data: dict[str, Any]) -> None:
        """Libraries outlive the temporary folder until the wheel is written."""
        kept = Path(self.directory, ".compiled")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(built, kept)
        for path in kept.rglob("*.so"):
            build_data["force_include"][str(path)] = str(path.relative_to(kept))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(Path(self.directory, ".compiled"), ignore_errors=True)
