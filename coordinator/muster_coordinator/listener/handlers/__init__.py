"""The handlers of Kafka's APIs, one module per concern. A handler takes a decoded request and its exchange, and answers
once.

`cluster.py`: ApiVersions, Metadata, DescribeCluster, FindCoordinator. `topics.py`: ListOffsets and Fetch of
topics that hold no data here. `groups.py`: everything that goes to a group's shard, alone or spread over several;
`transactions.py`: to that of a transactional id; `txn_offsets.py`: to both. `routes.py`: what these have in common.
"""
