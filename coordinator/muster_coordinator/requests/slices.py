"""The size of a slice: large answers are found, made and written in such, so that none of it takes long."""

SLICE_ENTRIES = 1000
"""Offsets, groups or members. So many take about a millisecond."""
