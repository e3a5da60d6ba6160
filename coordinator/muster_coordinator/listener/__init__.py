"""The side of a pod that Kafka clients see: the listener, its connections, and one handler per API in `handlers`.

Connections turn frames into requests and answers into frames. What a group does is decided in `groups`, which a
shard runs. May import `pod`, `shard`, `requests` and `wire`.
"""
