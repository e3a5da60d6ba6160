"""The real pod, and what the simulation gives it in the place of a machine: clocks, disk, network, threads."""
