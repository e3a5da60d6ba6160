"""Routes of the pod API that work on a replica: segments for the pipeline, fences for a re-shard."""
