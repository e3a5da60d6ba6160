"""What a person on call asks of clusters, on Kubernetes and on this machine: `seen` is read, the rest judges it."""
