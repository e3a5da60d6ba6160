"""A pod whose cluster is at transaction version 1, as before KIP-890: `python -m tests.support.transaction_version_1
OPTION...`; the options are those of `muster-coordinator`."""

from __future__ import annotations

import sys

from muster_coordinator.listener.handlers import cluster
from muster_coordinator.process.main import main

if __name__ == "__main__":
    vars(cluster)["TRANSACTION_FEATURES"] = (("transaction.version", 1),)
    sys.exit(main(sys.argv[1:]))
