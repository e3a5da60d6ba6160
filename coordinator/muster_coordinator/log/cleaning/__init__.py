"""Compaction of closed segments, and the archive that keeps them from before it."""
