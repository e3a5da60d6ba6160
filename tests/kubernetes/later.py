"""Makes a later Muster of the installed one, in an image: committed offsets are records of version 5, which this one
reads, and to describe a group whose id begins with "unlucky" is a defect. What was compiled is plain Python again.
"""

import compileall
from pathlib import Path

LIBRARY = Path("/opt/muster/lib")
COORDINATOR = LIBRARY / "muster_coordinator"


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
    file.write_text(text.replace(old, new), encoding="utf-8")


for compiled in [*COORDINATOR.rglob("*.so"), *LIBRARY.glob("*__mypyc*.so")]:
    compiled.unlink()
OFFSETS = COORDINATOR / "records" / "offset_commit.py"
for name in ("WRITTEN_VERSION", "LATEST_VERSION"):
    replace(OFFSETS, f"\n{name} = 4\n", f"\n{name} = 5\n")
DESCRIBED = "    group = state.look_at(request.group_id)\n    code = ErrorCode.GROUP_ID_NOT_FOUND"
DEFECT = '    assert not request.group_id.startswith("unlucky"), "a defect"\n'
replace(COORDINATOR / "groups" / "classic" / "description.py", DESCRIBED, DEFECT + DESCRIBED)
assert compileall.compile_dir(COORDINATOR, quiet=1, force=True)
