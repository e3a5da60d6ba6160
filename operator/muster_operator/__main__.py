"""`muster-operator`: imports what it is made of in a thread that stands back, runs, and ends at once when it is done.

The imports take half a second, in which groups should not wait. The operator itself stands back for nobody, and
gets a processor soon: groups whose leader died wait for it.
"""

from __future__ import annotations

from typing import NoReturn

from muster_coordinator.tuning.descriptors import make_room_for_descriptors
from muster_coordinator.tuning.ending import exit_at_once
from muster_coordinator.tuning.scheduling import import_standing_back, run_in_short_slices


def main() -> NoReturn:
    """Entry point of `muster-operator`; set up by the environment (kube.run.KubeOptions)."""
    make_room_for_descriptors()
    import_standing_back("uvloop", "muster_operator.kube.run", "muster_operator.process")
    from muster_operator.process import main as run

    run_in_short_slices()
    run()
    exit_at_once(0)


if __name__ == "__main__":
    main()
