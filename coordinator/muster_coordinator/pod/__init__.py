"""One process with all its partitions.

`replica_manager` (Kafka: ReplicaManager) holds the replicas and takes elections and resignations; `turns` groups
the work of all partitions into journal writes; `data_directory` owns the files; `control` serves the pod API;
`chores` run in the background; `routes` are the pod API's routes that need a replica. May import `replica` and
everything below it, and `podapi`.
"""
