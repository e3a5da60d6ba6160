"""One group's moves from Kafka to Muster and back, simulated: production's leases and steps in a model of all else."""
