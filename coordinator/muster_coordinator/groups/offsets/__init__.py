"""The APIs of offsets, for groups of every kind: `commit`, `fetch`, `deletion` (everything that writes tombstones),
`transactions`. They look at the groups of both kinds; no kind knows them. What they change is `groups.offset_store`.
"""
