"""The real pod, and what the simulation gives it in place of a machine: clocks, disk, network, threads."""
