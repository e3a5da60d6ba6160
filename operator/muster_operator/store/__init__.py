"""The ports that plan and steps see of the world: declared objects (`port`) and pods as a workload (`workload`).

Implementations: `sqlite` (embedded mode), `muster_operator.kube` (Kubernetes).
"""
