"""Follows the offsets partitions of a Kafka cluster: asks its brokers, and gives what they answer to the shards that
mirror them. What an answer means stands in `muster_coordinator.mirror`.
"""
