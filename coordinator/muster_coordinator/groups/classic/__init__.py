"""Groups of the classic protocol. One module per API: `join`, `sync`, `heartbeat`, `leave`, `description` (list,
describe); `rebalance` is what several of them start. `states` holds the table of states, `group` and `member` the
state, `tables` all groups of one partition.

It knows groups of the consumer protocol, never the other way round: `consumer_groups` is what a request meets when its
group is of the other kind, `migration` makes one of the other. It knows nothing of the APIs of offsets.
"""
