"""The operator's side of the Kubernetes API: client, store and workload ports, Lease elector.

May import api, store and the client library; plan and steps see only the ports of `muster_operator.store`.
"""
