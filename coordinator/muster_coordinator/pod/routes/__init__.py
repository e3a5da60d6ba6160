"""Routes of the pod API that work on replicas: segments for the pipeline, fences for a re-shard."""
