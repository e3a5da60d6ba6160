"""The Kafka listener of a pod and its process: connections, dispatch, cluster view, settings, metrics.

May import ``shard``, ``wire`` and, for the process, ``podapi``. Connections turn frames into requests and answers
into frames; ``handlers`` say what each API does; everything about groups is in ``groups``.
"""
