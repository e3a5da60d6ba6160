"""What holds for all tests: they touch no Kubernetes but the one that was declared for them."""

import os

# A test that applies CRDs must not do so where a developer happens to work.
for _name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
    os.environ.pop(_name, None)
if "MUSTER_TEST_KUBECONFIG" in os.environ:
    os.environ["KUBECONFIG"] = os.environ["MUSTER_TEST_KUBECONFIG"]
