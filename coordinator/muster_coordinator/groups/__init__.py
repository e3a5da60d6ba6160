"""The group coordinator's state machine, for one offsets partition and without I/O. May import `records`, `requests`
and `errors` only.

`coordinator` is the way in: requests (`messages`) and timers go in, a `result` with records, answers and timers comes
out, `replay` applies the records. `sessions` starts those of members that come from a log, `searches` looks for offsets
that have to go. A kind of groups is a folder, `classic` and `consumer`, and its requests are entries in the
coordinator's table of handlers; `offsets` has the APIs of offsets, which are the same for all kinds.
The modules beside them are what they share: `offset_store`, `effects`, `admission`, `config`, `packed`, `topics`,
`subscription`. Imports go one way: `offsets` may import `classic`, and both may import `consumer`, which knows neither.

Words: *durable* is what the log says and replay alone changes; *live* is what only an active leader has on top of it
(parked requests, members that are joining). A *pending* member got MEMBER_ID_REQUIRED; a *pending* offset belongs to
an open transaction.
"""
