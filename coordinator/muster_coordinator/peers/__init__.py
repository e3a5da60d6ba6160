"""The network between pods that replication uses: who is where, one connection per ordered pair of pods, who is lost.

network.py      the whole: implements `replica.ports.Peers`
outbound.py     the connection to one pod: queue, reconnecting, silence
inbound.py      a connection that another pod made
frames.py       bytes
addresses.py    which pod has which replica, and at which address
endpoint.py     sockets: the place of mutual TLS
"""
