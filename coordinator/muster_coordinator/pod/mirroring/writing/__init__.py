"""Offsets of groups that have moved are written to the Kafka cluster: it may have to do without Muster one day."""
