"""The gateway: a protocol-aware front of an existing Kafka cluster, with groups at Muster.

Stateless. Clients use it as their cluster; it names itself in place of brokers, sends the requests of groups to the
coordinator that serves the group, and cuts everything else through without assembling it.
"""
