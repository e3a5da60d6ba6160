"""The pod's journal: one file for the writes of all its partitions, synced once per write."""
