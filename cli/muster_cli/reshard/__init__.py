"""`muster reshard`: another number of partitions for an offsets topic. Needs the extra `pipeline`."""
