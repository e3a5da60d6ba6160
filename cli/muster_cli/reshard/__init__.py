"""`muster reshard`: another number of partitions for one of the two topics. Needs the extra `pipeline`."""
