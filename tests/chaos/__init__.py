"""Chaos: faults on real processes, networks and Kubernetes under a committing load with a checker (`make chaos`)."""
