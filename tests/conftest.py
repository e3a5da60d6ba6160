"""What holds for all tests: they touch no Kubernetes but the one that was declared for them."""

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# A test that applies CRDs must not do so where a developer happens to work.
for _name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
    os.environ.pop(_name, None)
if "MUSTER_TEST_KUBECONFIG" in os.environ:
    os.environ["KUBECONFIG"] = os.environ["MUSTER_TEST_KUBECONFIG"]

# A run draws the same examples each time, so that red means the change and not the draw; `make fuzz` draws new ones.
# No example has a deadline: a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

SPARK_FOLDER = "tests/pipeline/"
WITHOUT_SPARK = ("test_kafka_logs", "test_reshard_start", "test_running_pod")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """Where tests run side by side, those with the Spark session run in one process, so that one JVM is enough. Each
    other test goes to the process that is free first. (xdist's own `loadgroup` has no effect with pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            with_spark = path.startswith(SPARK_FOLDER) and not path.endswith(
                tuple(f"{each}.py" for each in WITHOUT_SPARK)
            )
            return SPARK_FOLDER if with_spark else nodeid

    return Scheduling(config, log)
