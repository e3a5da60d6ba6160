"""The questions of a person on call about clusters, on Kubernetes and on this machine: `seen` is read, the rest judges
it."""
