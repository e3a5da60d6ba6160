"""What holds for all tests: they touch no Kubernetes but the one that was declared for them."""

import os

from hypothesis import settings

# A test that applies CRDs must not do so where a developer happens to work.
for _name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
    os.environ.pop(_name, None)
if "MUSTER_TEST_KUBECONFIG" in os.environ:
    os.environ["KUBECONFIG"] = os.environ["MUSTER_TEST_KUBECONFIG"]

# A run draws the same examples each time, so that red means the change and not the draw; `make fuzz` draws new ones.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
