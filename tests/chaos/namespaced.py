"""`muster` with pods in network namespaces: `python -m tests.chaos.namespaced NAMESPACE=HOST,... local up ...`"""

from __future__ import annotations

import sys
from functools import partial

from muster_cli.local import up
from muster_cli.local.workload import PodNetwork
from muster_cli.main import cli


def main() -> None:
    pairs = [pair.split("=") for pair in sys.argv[1].split(",")]
    networks = [PodNetwork(host, ("ip", "netns", "exec", name)) for name, host in pairs]
    up.run_local_up = partial(up.run_local_up, networks=networks)
    cli(sys.argv[2:], prog_name="muster")


if __name__ == "__main__":
    main()
