"""`muster mirror`: how far a Kafka cluster's groups have been read."""
