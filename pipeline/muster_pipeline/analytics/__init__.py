"""Analytics of groups: DataFrame in, DataFrame out. Only `ends` reads or writes.

history      the records of a group's generations, numbered
spans        the one pass over all commits: what was committed per partition and generation; the rest works on that
lag          how far behind, in records and in time      ends   where end offsets come from
rates        commits per group, outliers                 groups  stalled, idle, abandoned, expiring soon
regressions  offsets that went back, and why             timeline  rebalances: who, why, how long
skew         load of the offsets partitions, now and with another number of them

Times are milliseconds since 1970 in UTC, durations milliseconds. Imports `tables` and `decode`.
"""
