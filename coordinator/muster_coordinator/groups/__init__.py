"""The group coordinator's state machine, for one offsets partition and without I/O. May import `records` and
`errors` only.

`coordinator` is the way in: requests (`messages`) and timers go in, a `result` with records, answers and
timers comes out, `replay` applies the records. One module per API: `join`, `sync`, `heartbeat`, `leave`,
`offset_commit`, `offset_fetch`, `description` (list, describe), `deletion` (everything that writes
tombstones), `transactions`; `rebalance` is what several of them start. `states` holds the tables,
`classic_group`, `member` and `offsets` the state.

Words: *durable* is what the log says and replay alone changes; *live* is what only an active leader has on top of it
(parked requests, members that are joining). A *pending* member got MEMBER_ID_REQUIRED; a *pending* offset belongs to
an open transaction.
"""
