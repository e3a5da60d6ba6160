"""`python -m muster_cli`: the same as `muster`."""

from muster_cli.main import main

main()
