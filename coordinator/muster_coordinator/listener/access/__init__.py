"""Asks, before a handler runs, whether the client may do what it asks for. Used only where there are ACLs.

A guard takes a request, its exchange and the handler: it answers what is refused as Kafka does (KafkaApis), hands what
is allowed to the handler, and puts both together. `groups.py`, `offsets.py`, `topics.py`, `cluster.py`: the guards;
`table.py`: which request has which.
"""
