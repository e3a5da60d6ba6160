"""One group's move from Kafka to Muster, simulated: production's leases and steps in a model of everything else."""
