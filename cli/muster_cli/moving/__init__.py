"""`muster groups move` and `muster groups moves`: live groups of a Kafka cluster come to Muster (docs/adopt.md)."""
