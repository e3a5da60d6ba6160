"""The real operator in the simulation, and what it gets in place of Kubernetes and of a network.

Real: `kube.run.operate` with elector, store, caches, reconcile loop, plan, steps, sessions with pods; the HTTP client
and server of aiohttp; the pods' API and their network. Simulated: the API server behind the client's port, watch
streams, connections, clocks, chance, the event loop.
"""
